"""The outer scale of an NVFP4 weight would be that of a shard in training.

TransformerEngine takes the maximum of the part of a weight that a rank holds; Miles' converter and its live export,
which gathers a weight first, take that of the whole weight.

```prec expect=P503 model=qwen3-30b-a3b
@routed_experts: nvfp4 per_token
train: etp=2
rollout: tp=2
targets: miles
```

```prec model=qwen3-30b-a3b
@routed_experts: nvfp4 per_token
train: ep=4
rollout: tp=2 ep=2
targets: miles
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error
from precc.syntax.words import Role

CODE = "P503"
NAME = "miles-outer-scale"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for each size that splits a weight: `etp` for routed experts, `tp` for others."""
    for key in ("etp", "tp"):
        split = [entry for entry in contract.quantized() if _key(entry) == key]
        if getattr(contract.train, key) > 1 and split:
            shards = getattr(contract.train, key)
            yield error(
                CODE,
                f"{counted_names(split)}: each of {shards} shards ({key}) would have its own NVFP4 outer scale in "
                "training; converter and live export have one for the whole weight",
                split[0].span,
                help=f"train with `{key}=1`, or give these weights mxfp8",
            )


def _key(entry: Entry) -> str:
    """The size that splits an NVFP4 weight which is trained in it; nothing for any other."""
    tensor, decision = entry.tensor, entry.decision
    if decision.weight.format != "nvfp4" or not decision.trains_quantized or tensor.parallel is None:
        return ""
    return "etp" if tensor.role is Role.ROUTED_EXPERTS else "tp"
