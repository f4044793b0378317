"""SGLang: what is not quantized multiplies in one dtype, BF16.

The server has one `--dtype` for all unquantized weights and all activations, and precc starts it with `bfloat16`. A
weight that a rule puts in FP16 or FP32 would be loaded, and cast to BF16 without a word.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
@routed_experts: mxfp8
o_proj: fp16
```

```prec model=qwen3-30b-a3b
targets: sglang
@routed_experts: mxfp8
o_proj: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-one-dtype"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all unquantized weights that a rule puts in another dtype."""
    choice = choice_of(contract)
    if choice is None:
        return
    asking = choice.entries(Kind.LINEAR, Kind.EXPERTS, Kind.HEAD)
    other = [entry for _, entry, _ in asking if _is_other(entry)]
    yield from refuse(
        contract, CODE, other, "multiplies unquantized weights in BF16, whatever is stored", "write `bf16`"
    )


def _is_other(entry: Entry) -> bool:
    decision = entry.decision
    return not decision.is_quantized and decision.input is not None and decision.weight.format != "bf16"
