"""A block does not divide the dimension that is left after tensor or expert parallelism.

A rank holds a shard. An expert's `down_proj` of contraction 768, split over 8 ranks, leaves 96, which blocks of 128
do not divide: SGLang refuses such a model when it loads, and a trainer when it runs.

```prec expect=P302 model=qwen3-30b-a3b
default: fp8_block scales fp32
train: gpu=h200
rollout: gpu=h200 tp=8
```

Choose sizes that divide; the finding lists them. Expert parallelism leaves experts whole:

```prec model=qwen3-30b-a3b
default: fp8_block scales fp32
train: gpu=h200
rollout: gpu=h200 tp=8 ep=8 dp=8
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from precc.contract import Contract, Entry
from precc.contract.wording import folded_names, listed
from precc.diagnostics import Diagnostic, Severity, error
from precc.rules.contract.p301_block_does_not_divide import indivisible
from precc.syntax.words import Role

CODE = "P302"
NAME = "block-does-not-divide-after-sharding"
SEVERITY = Severity.ERROR

_EXPERTS_SERVED = "tp / ep"
"""What the ranks are called that a server splits each expert over."""


class _Split(NamedTuple):
    """How one side splits one tensor: the side, what the number of ranks is called, the number, and the numbers that
    this model could be run with (they divide its attention heads)."""

    side: str
    key: str
    ranks: int
    possible: tuple[int, ...]


class _Shards(NamedTuple):
    """A dimension that is split, the block that runs along it, and into how many parts it is split at most."""

    size: int
    block: int
    most: int | None

    def fit(self, ranks: int) -> bool:
        """Whether so many ranks get whole blocks."""
        parts = ranks if self.most is None else min(ranks, self.most)
        return self.size % parts == 0 and (self.size // parts) % self.block == 0


def check(contract: Contract) -> Iterator[Diagnostic]:
    """Every quantized weight on every side that is asked for; equal shards under one rule are one finding."""
    found: dict[tuple[object, _Shards, _Split], list[Entry]] = {}
    possible = _possible(contract)
    for entry in contract.quantized():
        if not entry.tensor.is_gemm or entry.tensor.parallel is None or indivisible(entry) is not None:
            continue
        for split in _splits(contract, entry, possible):
            shards = _Shards(*_size_and_block(entry), _most_shards(contract, entry))
            if split.ranks > 1 and not shards.fit(split.ranks):
                found.setdefault((entry.cause, shards, split), []).append(entry)
    for (_, shards, split), entries in found.items():
        yield _finding(entries, shards, split)


def _splits(contract: Contract, entry: Entry, possible: tuple[int, ...]) -> Iterator[_Split]:
    is_expert = entry.tensor.role is Role.ROUTED_EXPERTS
    if contract.runs("te") and entry.decision.train != "bf16":
        key = "etp" if is_expert else "tp"
        yield _Split("training", key, getattr(contract.train, key), possible)
    if contract.runs("sglang"):
        rollout = contract.rollout
        if is_expert:
            yield _Split("serving", _EXPERTS_SERVED, rollout.expert_tp, possible)
        else:
            in_attention = Role.ATTENTION in (entry.tensor.role, *entry.tensor.within)
            yield _Split("serving", "tp", rollout.attention_tp if in_attention else rollout.tp, possible)


def _possible(contract: Contract) -> tuple[int, ...]:
    """The divisors of the attention heads: tp is one of them, and so is tp / ep."""
    heads = contract.model.config.get("num_attention_heads")
    most = heads if isinstance(heads, int) else 64
    return tuple(ranks for ranks in range(1, most + 1) if most % ranks == 0)


def _size_and_block(entry: Entry) -> tuple[int, int]:
    """The dimension that is split, and the block that runs along it."""
    tensor, block = entry.tensor, entry.decision.weight.block or (1, 1)
    if tensor.parallel == "row":
        wide = max(block[1], (entry.decision.input.block or (1, 1))[1] if entry.decision.input else 1)
        return tensor.shape[tensor.contraction], wide
    rows = next(axis for axis in reversed(range(len(tensor.shape))) if axis != tensor.contraction)
    return tensor.shape[rows], block[0]


def _most_shards(contract: Contract, entry: Entry) -> int | None:
    """Keys and values are split by heads; with more ranks than heads, ranks hold copies of a head."""
    heads = contract.model.config.get("num_key_value_heads")
    return heads if entry.tensor.part in ("k", "v") and isinstance(heads, int) else None


def _finding(entries: list[Entry], shards: _Shards, split: _Split) -> Diagnostic:
    form = entries[0].decision.weight.format
    left = f"{shards.size} / {split.ranks} = {shards.size / split.ranks:g}"
    return error(
        CODE,
        f"{folded_names(entries)} in {split.side} with {split.key}={split.ranks}: {left} is not "
        + (f"a multiple of the {shards.block}-element block of {form}" if shards.block > 1 else "a whole number"),
        entries[0].span,
        help=_help(shards, split),
    )


def _help(shards: _Shards, split: _Split) -> str:
    """The sizes that work, if there are any, and what else would, if it does anything about this weight."""
    works = [str(ranks) for ranks in split.possible if shards.fit(ranks)]
    sizes = f"sizes that work for {split.key}: {listed(works, 'or')}"
    first = sizes if works else f"no size works for {split.key}: keep them in `bf16`"
    others = (
        ("or a format with smaller blocks", shards.block > 1),
        ("or more expert parallelism for experts", split.key == _EXPERTS_SERVED),
    )
    return "; ".join(filter(None, (first, ", ".join(text for text, helps in others if helps))))
