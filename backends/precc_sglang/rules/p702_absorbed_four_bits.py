"""SGLang: absorption splits the packed bytes of a four-bit `kv_b_proj`.

Latent attention is served absorbed: at load `kv_b_proj` is split into two matrices. That step knows BF16, FP8 and
INT8 weights; of NVFP4 it splits the packed codes as if they were numbers, without an error, and of packed INT4 it
finds no weight.

```prec expect=P702 model=deepseek-v3
targets: sglang
kv_b_proj: weight nvfp4, train bf16
```

Keep it in BF16 (1.9 GiB in DeepSeek-V3):

```prec model=deepseek-v3
targets: sglang
@routed_experts: nvfp4 per_token
kv_b_proj: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import INT4, NVFP4_WEIGHTS, Family, is_w4a4
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse

CODE = "P702"
NAME = "sglang-absorption-of-packed-weights"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all four-bit `kv_b_proj`."""
    choice = choice_of(contract)
    if choice is None:
        return
    packed = [entry for _, entry, family in choice.entries() if entry.tensor.part == "kv_b" and _is_packed(family)]
    yield from refuse(
        contract,
        CODE,
        packed,
        "splits `kv_b_proj` for absorption, and cannot unpack four-bit codes",
        "write `kv_b_proj: bf16`",
    )


def _is_packed(family: Family | None) -> bool:
    return family is not None and (family.name == INT4.name or family is NVFP4_WEIGHTS or is_w4a4(family))
