"""SGLang: this class loads the experts of a layer from one tensor only.

Quantized experts are stored one by one, each with its scales. The loader of gpt-oss looks for `experts.gate_up_proj`
and `experts.down_proj`; names with an expert's number are passed over without a word, and the experts stay as they were
allocated. Its attention, router and LM head are built without a quantization config, so that nothing is left to
quantize. Only MXFP4 is stored, and loaded, as a stack.

```prec expect=P701 model=gpt-oss-20b
targets: sglang
@routed_experts: mxfp8
```

That of Step-3.7 takes stacks in every format, and from each of their tensors the part of each expert; of packed
integers one tensor is the shape that all of them share.

```prec expect=P701 model=step-3.7-flash
targets: sglang
@routed_experts: weight int4 group 32, train bf16
```

Serve the model in BF16:

```prec model=gpt-oss-20b
targets: sglang
default: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import MXFP4_WEIGHTS, UNQUANTIZED
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-stacked-experts"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all quantized experts that a class's loader, which knows stacks alone, cannot take."""
    choice = choice_of(contract)
    if choice is None or choice.built.experts == "single":
        return
    if choice.built.experts == "stacked":
        shapes = [entry for _, entry, family in choice.entries(Kind.EXPERTS) if family is not None and family.group]
        yield from refuse(
            contract,
            CODE,
            shapes,
            f"takes a part for each expert from every tensor in {choice.built.name}: `weight_shape` has none",
            "write another format for experts, or leave `sglang` out of `targets:`",
        )
        return
    lost = [entry for _, entry, family in choice.entries(Kind.EXPERTS) if family not in _STACKED]
    yield from refuse(
        contract,
        CODE,
        lost,
        f"loads no quantized experts in {choice.built.name}: it knows them stacked in one tensor, without scales",
        "write `weight mxfp4, train bf16` for all experts or leave them in `bf16`, or leave `sglang` out of `targets:`",
    )


_STACKED = (None, UNQUANTIZED, MXFP4_WEIGHTS)
"""What a stack is stored in; None has its own finding."""
