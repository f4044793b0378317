"""SGLang: the rollout's GPU has no kernels for this format.

MXFP8 and NVFP4 inputs need Blackwell. On Hopper MXFP8 does not start, and NVFP4 is served by Marlin with its inputs
unquantized, whatever the checkpoint says.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
rollout: gpu=h100
@routed_experts: nvfp4 per_token
```

Use a format that this GPU multiplies in:

```prec model=qwen3-30b-a3b
targets: sglang
rollout: gpu=h100
@routed_experts: weight nvfp4, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import family_of
from precc_sglang.refusal import refuse
from precc_sglang.versions import capability

CODE = "P701"
NAME = "sglang-gpu-lacks-kernels"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for each family that needs a newer GPU."""
    has = capability(contract.rollout)
    beyond: dict[str, list[Entry]] = {}
    for entry in contract.quantized():
        family = family_of(entry.decision)
        if family is not None and family.capability > has:
            beyond.setdefault(family.title, []).append(entry)
    for title, entries in beyond.items():
        yield from refuse(
            contract,
            CODE,
            entries,
            f"has no kernels for {title} on `gpu={contract.rollout.gpu}`",
            "state the GPU of the rollout (`rollout: gpu=b200`), or use `fp8_block`, per-channel `fp8` or "
            "`weight nvfp4`",
        )
