"""SGLang: of the fused `q_a_proj` and `kv_a_proj_with_mqa` one scale is kept.

DeepSeek classes load the two as one matrix. A scale that is a scalar (the outer scale of NVFP4, that of per-tensor
FP8) is kept for `q_a_proj` only, so `kv_a_proj_with_mqa` would be multiplied by the wrong one, without a message.
P202 says so of the two in NVFP4.

```prec expect=P701 model=deepseek-v3
targets: sglang
{q_a_proj,kv_a_proj_with_mqa}: weight fp8 per_tensor, input fp8 per_tensor static, train bf16
```

Blocks have no such scale:

```prec model=deepseek-v3
targets: sglang
{q_a_proj,kv_a_proj_with_mqa}: mxfp8
```

Kimi-K3's class puts the scales of the second behind those of the first as if each were for 128 rows, which is right for
block FP8 alone:

```prec expect=P701 model=kimi-k3
targets: sglang
{q_a_proj,kv_a_proj_with_mqa}: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.classes import QKV_A
from precc_sglang.families import FP8_TENSOR, MXFP8, NVFP4_STATIC, NVFP4_TOKEN, NVFP4_WEIGHTS, family_of
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-fused-down-projection-scales"
SEVERITY = Severity.ERROR


SCALAR_SCALES = (NVFP4_WEIGHTS, NVFP4_TOKEN, NVFP4_STATIC, FP8_TENSOR)


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all fused down projections with a scalar scale."""
    choice = choice_of(contract)
    if choice is None:
        return
    fused = [
        (entry, entries) for module, entries in choice.modules.items() if module.last in QKV_A for entry in entries
    ]
    scalar = [entry for entry, all in fused if family_of(entry.decision) in SCALAR_SCALES and not _is_p202(all)]
    yield from refuse(
        contract,
        CODE,
        scalar,
        "keeps the outer scale of `q_a_proj` for both",
        "write `bf16`, `mxfp8` or `fp8_block` for `q_a_proj` and `kv_a_proj_with_mqa`",
    )
    misplaced = [entry for entry, _ in fused if choice.built.blocks_below and family_of(entry.decision) is MXFP8]
    yield from refuse(
        contract,
        CODE,
        misplaced,
        f"puts a scale for each row in the place of one for 128 in {choice.built.name}",
        "write `bf16` or `fp8_block` for `q_a_proj` and `kv_a_proj_with_mqa`",
    )


def _is_p202(entries: list[Entry]) -> bool:
    """Whether both are NVFP4, which P202 reports."""
    return all(entry.decision.weight.format == "nvfp4" for entry in entries)
