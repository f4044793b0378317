"""The contract's type, and the digest over what changes numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from precc.contract.entry import Entry
from precc.contract.fold import fold
from precc.contract.layout import RolloutLayout, TrainLayout
from precc.graph.model import EXPERT, ModelGraph, Tensor


@dataclass(frozen=True, eq=False)
class Contract:
    """Every tensor of a model with its decision, and what both sides must run.

    Compared by identity: two contracts decide the same if their digests are equal.

    `kv_cache` is the format of the rollout server's KV cache. `targets` are the backends the policy is for; None
    means all of them. `beneath` are engines that a target starts itself, whose rules hold although none is a target.
    Layouts and engine versions take part in what is emitted and never in the digest.
    """

    model: ModelGraph
    policy: str
    entries: tuple[Entry, ...] = field(repr=False)
    kv_cache: str = "bf16"
    train: TrainLayout = field(default_factory=TrainLayout)
    rollout: RolloutLayout = field(default_factory=RolloutLayout)
    targets: tuple[str, ...] | None = None
    beneath: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the canonical decisions, the tensors' names and shapes, and the KV cache."""
        lines = [
            [line.name, list(line.entry.tensor.shape), line.entry.decision.to_json()] for line in fold(self.entries)
        ]
        text = json.dumps([1, self.kv_cache, lines], sort_keys=True, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()

    @cached_property
    def _by_template(self) -> dict[tuple[str, ...], list[Entry]]:
        table: dict[tuple[str, ...], list[Entry]] = {}
        for entry in self.entries:
            table.setdefault((*entry.tensor.path, entry.tensor.parameter), []).append(entry)
        return table

    def wants(self, target: str) -> bool:
        """Whether the contract is for a target."""
        return self.targets is None or target in self.targets

    def runs(self, engine: str) -> bool:
        """Whether an engine runs the contract: as a target, or beneath one."""
        return self.wants(engine) or engine in self.beneath

    def __getitem__(self, name: str) -> Entry:
        """The entry of one checkpoint tensor, named with or without `.weight`. Raises KeyError."""
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def find(self, name: str) -> Entry | None:
        """The entry of one checkpoint tensor, named with or without `.weight`; None if the model has none."""
        for path in _readings(tuple(name.split("."))):
            for key, expert in _templates(path):
                for entry in self._by_template.get(key, ()):
                    if entry.tensor.experts is None or expert in entry.tensor.experts:
                        return entry
        return None

    def quantized(self) -> Iterator[Entry]:
        """The entries that some side runs below 16 bits."""
        return iter(self._quantized)

    @cached_property
    def _quantized(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.decision.is_quantized)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(entry.tensor for entry in self.entries)


def _readings(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """A name as written ends in its parameter, or is a module (`.weight` left out), or a bare parameter."""
    yield path
    yield (*path, "weight")
    yield (*path, "")


def _templates(path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int | None]]:
    yield path, None
    for position, word in enumerate(path):
        if word.isdecimal() and str(int(word)) == word:
            yield (*path[:position], EXPERT, *path[position + 1 :]), int(word)
