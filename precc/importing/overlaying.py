"""Several readings of one source, one on top of the other: what a later one decides stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from precc.formats import Decision
from precc.graph.model import ModelGraph, Tensor
from precc.importing.reading import Decided

Layer = Sequence[Decided]
"""What one reading decides, every tensor of the model in it."""


def overlaid(layers: Sequence[Layer], graph: ModelGraph) -> Iterator[Decided]:
    """Every tensor, or some of its experts, with the decision of the last layer that has one for it."""
    tables = [_by_name(layer) for layer in layers]
    for tensor in graph.tensors:
        held = [table.get((*tensor.path, tensor.parameter), []) for table in tables]
        for part in _parts(tensor, held):
            yield part, _last(part, held)


def _by_name(layer: Layer) -> dict[tuple[str, ...], list[Decided]]:
    found: dict[tuple[str, ...], list[Decided]] = {}
    for tensor, decision in layer:
        found.setdefault((*tensor.path, tensor.parameter), []).append((tensor, decision))
    return found


def _parts(tensor: Tensor, held: Sequence[list[Decided]]) -> Iterator[Tensor]:
    """The tensor, cut where a layer tells its experts apart."""
    if tensor.experts is None:
        yield tensor
        return
    inside = [part.experts for parts in held for part, _ in parts if part.experts is not None]
    edges = {edge for experts in inside for edge in (experts.start, experts.stop) if edge in tensor.experts}
    for start, stop in pairwise(sorted(edges | {tensor.experts.start, tensor.experts.stop})):
        yield tensor.narrowed(range(start, stop))


def _last(part: Tensor, held: Sequence[list[Decided]]) -> Decision | None:
    answers = [
        decision for parts in held for tensor, decision in parts if decision is not None and _holds(tensor, part)
    ]
    return answers[-1] if answers else None


def _holds(tensor: Tensor, part: Tensor) -> bool:
    return tensor.experts is None or part.experts is None or part.experts.start in tensor.experts
