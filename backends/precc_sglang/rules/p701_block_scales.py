"""SGLang: on Hopper some block-FP8 inputs have FP32 scales.

The power-of-two scales of a block-FP8 policy hold for weights and inputs. On Hopper the expert kernels scale their
inputs by FP32 numbers, and so do the dense ones in a mix of formats, whose config cannot say otherwise, and all of
SGLang 0.5.16, which does not read the config's `scale_fmt`.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
rollout: gpu=h100
@routed_experts: fp8_block
```

On that GPU the scales can be FP32 on both sides:

```prec model=qwen3-30b-a3b
targets: sglang
train: gpu=h100
rollout: gpu=h100
@routed_experts: fp8_block scales fp32
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_BLOCK
from precc_sglang.methods import MIXED, choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse
from precc_sglang.versions import is_blackwell, release_of

CODE = "P701"
NAME = "sglang-power-of-two-inputs-on-hopper"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all power-of-two block-FP8 weights whose inputs Hopper scales otherwise."""
    choice = choice_of(contract)
    if choice is None or is_blackwell(contract.rollout):
        return
    apart = [
        entry
        for module, entry, family in choice.entries(Kind.LINEAR, Kind.EXPERTS)
        if family is FP8_BLOCK
        and entry.decision.weight.scale == "pow2"
        and (module.kind is Kind.EXPERTS or choice.method == MIXED or not release_of(contract.rollout).declared_scales)
    ]
    yield from refuse(
        contract,
        CODE,
        apart,
        f"scales these inputs by FP32 numbers on `gpu={contract.rollout.gpu}`",
        "write `fp8_block scales fp32` for a Hopper rollout",
    )
