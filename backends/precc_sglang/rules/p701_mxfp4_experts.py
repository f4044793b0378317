"""SGLang: MXFP4 weights are for a class that loads them, and for all its experts alike.

Of the classes that precc knows, gpt-oss' alone reads experts in MXFP4, stacked as `experts.gate_up_proj_blocks` and
`_scales`. The method `mxfp4` reads no list: it takes every expert layer, and has nothing for linear layers. With
unquantized inputs it runs in Triton's kernels, which SGLang starts without expert parallelism only.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
@routed_experts: weight mxfp4, train bf16
```

```prec expect=P701 model=gpt-oss-20b-bf16
targets: sglang
@routed_experts in layers[:8]: weight mxfp4, train bf16
```

All experts of a gpt-oss:

```prec model=gpt-oss-20b-bf16
targets: sglang
@routed_experts: weight mxfp4, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import MXFP4_WEIGHTS, UNQUANTIZED, family_of
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-mxfp4-experts"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for a class that loads none, one for experts left out, one for a layout without kernels."""
    choice = choice_of(contract)
    held = [entry for entry in contract.quantized() if family_of(entry.decision) is MXFP4_WEIGHTS]
    if choice is None or not held:
        return
    if not choice.built.loads_mxfp4:
        yield from refuse(contract, CODE, held, f"loads no MXFP4 weights in {choice.built.name}", _OTHERS)
        return
    beside = [entry for _, entry, family in choice.entries(Kind.EXPERTS) if family is UNQUANTIZED]
    yield from refuse(contract, CODE, beside, "takes every expert layer for MXFP4 once one is", "write it for all")
    if contract.rollout.ep > 1:
        yield from refuse(
            contract,
            CODE,
            held,
            f"has no kernels for weight-only MXFP4 with `ep={contract.rollout.ep}`",
            "write `ep=1` in the `rollout:` line",
        )


_OTHERS = "served are `weight nvfp4`, `nvfp4 per_token` (experts) or `mxfp8`"
