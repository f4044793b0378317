"""SGLang: absorption requantizes an MXFP8 or per-channel `kv_b_proj` to one scale.

The kernel that multiplies by the absorbed matrices takes one scale for the whole tensor, so the weights are rounded
again, to per-tensor FP8: neither what the checkpoint holds nor what the trainer multiplies by.

```prec expect=P702 model=deepseek-v3
targets: sglang
default: mxfp8
```

Keep it in BF16:

```prec model=deepseek-v3
targets: sglang
default: mxfp8
kv_b_proj: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_CHANNEL, MXFP8
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse

CODE = "P702"
NAME = "sglang-absorption-requantizes"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all `kv_b_proj` that are rounded again."""
    choice = choice_of(contract)
    if choice is None:
        return
    again = [
        entry for _, entry, family in choice.entries() if entry.tensor.part == "kv_b" and family in (MXFP8, FP8_CHANNEL)
    ]
    yield from refuse(
        contract,
        CODE,
        again,
        "rounds `kv_b_proj` again, to per-tensor FP8, when it absorbs it",
        "write `kv_b_proj: bf16`",
    )
