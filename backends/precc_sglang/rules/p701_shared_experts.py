"""SGLang: this version has no shared experts in static per-tensor FP8.

SGLang 0.5.16 asks FP8 shared experts that stand apart from the routed ones for the size of their blocks, and its server
stops where they have one scale a tensor. Whether it keeps them apart depends on the GPU and the expert backend.

```prec expect=P701 model=deepseek-v3
targets: sglang
rollout: sglang=0.5.16
@shared_experts: weight fp8 per_tensor, input fp8 per_tensor static, train bf16
```

Give them per-channel scales, or serve them with a version that has them:

```prec model=deepseek-v3
targets: sglang
rollout: sglang=0.5.16
@shared_experts: weight fp8 per_channel, input fp8 per_token, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc.syntax.words import Role
from precc_sglang.families import FP8_TENSOR
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse
from precc_sglang.versions import release_of, version_that

CODE = "P701"
NAME = "sglang-static-fp8-shared-experts"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all static FP8 weights of shared experts, in a version whose classes stop at them."""
    choice = choice_of(contract)
    if choice is None or release_of(contract.rollout).scalar_shared_experts:
        return
    shared = [
        entry
        for _, entry, family in choice.entries()
        if family is FP8_TENSOR and entry.tensor.role is Role.SHARED_EXPERTS
    ]
    version = version_that(lambda release: release.scalar_shared_experts)
    yield from refuse(
        contract,
        CODE,
        shared,
        "does not start with shared experts in static per-tensor FP8",
        "write `weight fp8 per_channel, input fp8 per_token` (for all FP8 of this model), or `bf16`, or "
        f"`rollout: sglang={version}`",
    )
