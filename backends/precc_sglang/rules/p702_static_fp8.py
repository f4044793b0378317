"""SGLang: static per-tensor FP8 is rounded again in fused layers.

A fused layer has one weight scale. Where q, k and v, gate and up, or an expert's gate and up are stored with scales of
their own, SGLang takes the largest and rounds the others' weights again; of the input scales it takes the largest
too. The served weights are then not those that were converted.

```prec expect=P702 model=qwen3-8b
targets: sglang
default: weight fp8 per_tensor, input fp8 per_tensor static, train bf16
```

Channel scales stay as they are:

```prec model=qwen3-8b
targets: sglang
default: weight fp8 per_channel, input fp8 per_token, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_TENSOR
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse

CODE = "P702"
NAME = "sglang-static-fp8-is-rounded-again"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all members of fused layers with a scale each."""
    choice = choice_of(contract)
    if choice is None:
        return
    members = [
        entry
        for module, entry, family in choice.entries()
        if family is FP8_TENSOR
        and (len(module.shards) > 1 or (module.kind is Kind.EXPERTS and choice.is_gated(module)))
    ]
    yield from refuse(
        contract,
        CODE,
        members,
        "rounds the weights of a fused layer again, to the largest of its members' scales",
        "write `weight fp8 per_channel, input fp8 per_token`, or `fp8_block`; or silence this where the checkpoint "
        "gives the members one scale",
    )
