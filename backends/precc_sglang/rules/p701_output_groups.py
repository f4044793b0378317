"""SGLang: DeepSeek-V4's `wo_a` is in block FP8 with power-of-two scales beside block FP8 or MXFP4 experts.

The projection of the groups of heads is multiplied by a kernel of its own (`SGLANG_OPT_FP8_WO_A_GEMM`, which is on).
Under the method `fp8` in 128×128 blocks the class stops where it is not quantized; on Blackwell that kernel rounds
every scale to a power of two. Under any other method the class builds it without a quantization config. SGLang 0.5.16
asks for FP8 there whatever the method is, and its class is not modelled.

```prec expect=P701 model=deepseek-v4-flash
targets: sglang
@attention: fp8_block
wo_a in layers[0]: bf16
```

Leave it in FP8, MTP layers too:

```prec model=deepseek-v4-flash
targets: sglang
@attention: fp8_block
@attention in @mtp: fp8_block
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_BLOCK, family_of
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse
from precc_sglang.versions import is_blackwell, sglang_version

CODE = "P701"
NAME = "sglang-output-groups"
SEVERITY = Severity.ERROR

OUTPUT_GROUPS = "wo_a"


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for an old version, one for projections left out of FP8, one for those with other scales."""
    choice = choice_of(contract)
    if choice is None or not choice.built.fp8_beside_fp4:
        return
    if sglang_version(contract.rollout) == "0.5.16":
        what = f"asks for FP8 in {choice.built.name} whatever is decided"
        yield from refuse(contract, CODE, contract.entries, what, "write `rollout: sglang=0.5.23`")
        return
    if choice.method.argument != "fp8":
        return
    groups = [entry for entry in contract.entries if entry.tensor.path[-1] == OUTPUT_GROUPS]
    other = [entry for entry in groups if family_of(entry.decision) is not FP8_BLOCK]
    yield from refuse(
        contract,
        CODE,
        other,
        "stops where this projection is not in block FP8 and others are, or experts are in MXFP4",
        "write `fp8_block` for it, in MTP layers too (`@attention in @mtp`)",
    )
    scaled = [entry for entry in groups if entry not in other and entry.decision.weight.scale != "pow2"]
    yield from refuse(
        contract,
        CODE,
        scaled if is_blackwell(contract.rollout) else [],
        "rounds the scales of this projection to powers of two on Blackwell",
        "write `fp8_block` without `scales fp32`",
    )
