"""The outer scale of a trained weight would be that of a shard.

NVFP4 and per-tensor FP8 have an FP32 scale over the whole weight. TransformerEngine takes the maximum of the weight
that a rank holds: with tensor parallelism (for routed experts: expert tensor parallelism) that is a shard, and each
shard has another scale. The converter and the server use one scale for the whole weight, and so does the contract.

```prec expect=P503 model=qwen3-30b-a3b
experts.*: nvfp4 per_token, backward high_precision
train: etp=2
rollout: tp=2
```

Keep those weights whole in training, and spread experts over ranks with `ep` (on both sides where inputs are scaled
per token, which P503 is about, too). Formats whose scales are all local
(`mxfp8`, `fp8_block`) may be sharded.

```prec model=qwen3-30b-a3b
experts.*: nvfp4 per_token, backward high_precision
train: ep=8 etp=1
rollout: tp=8 ep=8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry, TrainLayout
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.modules import Line, modules_of
from precc_te.names import Module

CODE = "P503"
NAME = "sharded-outer-scale"
SEVERITY = Severity.ERROR

OUTER_SCALED = {"nvfp4": "NVFP4", "tensorwise": "per-tensor FP8"}


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding a format and kind of parallelism."""
    found: dict[tuple[str, str], list[Line]] = {}
    for precision, lines in modules_of(contract).quantized.items():
        for line in lines if precision.recipe in OUTER_SCALED else ():
            assert line.module is not None
            key = _sharding(line.module, line.entry.tensor.parallel, contract.train)
            if key:
                found.setdefault((precision.recipe, key), []).append(line)
    for (recipe, key), lines in found.items():
        entries = [line.entry for line in lines]
        yield error(
            CODE,
            f"{counted_names(entries)}: each of {getattr(contract.train, key)} shards ({key}) would have its own "
            f"{OUTER_SCALED[recipe]} outer scale in training; the contract has one for the whole weight",
            entries[0].span,
            help=f"{_whole(key, contract, entries)}, or give these weights a format without an outer scale, such as "
            "mxfp8",
        )


def _whole(key: str, contract: Contract, entries: list[Entry]) -> str:
    """The layout that keeps weights whole: on both sides, where a scale is that of a token's part on each rank."""
    served = contract.rollout
    per_token = any(entry.decision.input is not None and entry.decision.input.scope == "per_token" for entry in entries)
    if key == "etp" and per_token and contract.wants("sglang") and served.expert_tp > 1:
        return f"leave experts whole on both sides: `train: etp=1` and `rollout: tp={served.tp} ep={served.tp}`"
    return f"train with `{key}=1`"


def _sharding(module: Module, parallel: str | None, train: TrainLayout) -> str:
    """The layout key that splits a linear layer's weight, or nothing. `eh_proj` is split by columns in Megatron."""
    if module.is_experts:
        return "etp" if train.etp > 1 else ""
    return "tp" if train.tp > 1 and (parallel is not None or module.direct) else ""
