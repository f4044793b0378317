"""Members of one fused GEMM would not share the NVFP4 outer scale.

NVFP4 has an FP32 scale above its blocks, and a fused GEMM reads one for all its rows. The converter computes it over
gate and up, and over q, k and v, together. SGLang also fuses `q_a_proj` with `kv_a_proj_with_mqa` and keeps only the
scale of the first, without a word.

```prec expect=P202 model=deepseek-v3
{q_a_proj,kv_a_proj_with_mqa}: weight nvfp4, train bf16
targets: sglang, converter
```

Choose a format without an outer scale for them:

```prec model=deepseek-v3
{q_a_proj,kv_a_proj_with_mqa}: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, error
from precc.rules.contract.p201_fused_members_differ import fused_groups
from precc.syntax.words import Role

CODE = "P202"
NAME = "outer-scale-not-shared"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """Every GEMM that SGLang fuses along the output axis; the experts' container is no single GEMM."""
    if not contract.runs("sglang"):
        return
    torn: list[Entry] = []
    for members in fused_groups(contract, "sglang").values():
        low = [m for m in members if m.decision.weight.format == "nvfp4" and m.tensor.role is not Role.ROUTED_EXPERTS]
        groups = {member.tensor.scale_group for member in low}
        if len(low) > 1 and (None in groups or len(groups) > 1):
            torn.extend(low)
    if torn:
        yield error(
            CODE,
            f"SGLang runs {folded_names(torn)} as one GEMM and keeps one NVFP4 outer scale of the two",
            torn[0].span,
            help="use mxfp8, fp8_block or bf16 for them",
        )
