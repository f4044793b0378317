"""Which layers have an indexer of sparse attention: Megatron-Core builds one in every layer, or in a rhythm."""

from __future__ import annotations

from collections.abc import Iterable

from precc.graph.model import ModelGraph, Tensor
from precc.records import record
from precc.syntax.words import Role


@record
class Rhythm:
    """The first `offset` layers have an indexer, and from there every `every`-th; the others reuse its choice.

    These are Megatron-Core's `dsa_indexer_skip_topk_offset` and `dsa_indexer_topk_freq`.
    """

    offset: int
    every: int

    def layers(self, count: int) -> frozenset[int]:
        """The layers that have one, of so many (`is_dsa_skip_topk_layer`, which counts them from 1)."""
        return frozenset(layer for layer in range(count) if max(layer + 1 - self.offset, 0) % self.every == 0)


def indexed_layers(tensors: Iterable[Tensor]) -> frozenset[int]:
    """The decoder layers that have an indexer."""
    return frozenset(t.layer for t in tensors if t.role is Role.INDEXER and t.layer is not None)


def skipping_layers(model: ModelGraph) -> list[int]:
    """The decoder layers that reuse an earlier layer's choice."""
    having = indexed_layers(model.tensors)
    return sorted(set(range(model.layers)) - having) if having else []


def rhythm_of(layers: int, having: frozenset[int]) -> Rhythm | None:
    """The rhythm of the layers that have an indexer; None where they have none."""
    offset = next((layer for layer in range(layers) if layer not in having), layers)
    after = [layer for layer in sorted(having) if layer > offset]
    found = Rhythm(offset, after[0] + 1 - offset if after else max(1, layers))
    return found if found.layers(layers) == having else None
