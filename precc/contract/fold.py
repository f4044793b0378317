"""The normal form of a contract: equal decisions of neighbouring layers and experts are one line.

Two contracts that decide the same for every tensor have the same normal form, however their rules, and the ranges
that these split, were written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple

from precc.contract.entry import Entry
from precc.graph.model import EXPERT, Tensor

LAYER = "{l}"

Alike = Callable[[Entry], Hashable]
"""What two entries must have in common to share a line."""


class Folded(NamedTuple):
    """One line of the normal form: a name with ranges in braces (`model.layers.{3..60}.mlp.gate.weight`), an entry
    that stands for all of it, and its ranges of decoder layers and experts."""

    name: str
    entry: Entry
    layers: range | None
    experts: range | None


def by_decision(entry: Entry) -> Hashable:
    """This is what the digest is over: the decision and the shape."""
    return entry.decision, entry.tensor.shape


def by_cause(entry: Entry) -> Hashable:
    """This keeps apart what differs in anything that the contract's file records."""
    tensor = entry.tensor
    return entry.decision, tensor.shape, tensor.role, tensor.form, entry.cause


def fold(entries: Iterable[Entry], alike: Alike = by_decision) -> tuple[Folded, ...]:
    """This is the normal form of entries: experts merged within a layer, then layers; sorted by name."""
    templates: dict[tuple[str, ...], dict[int | None, list[Entry]]] = {}
    for entry in entries:
        layers = templates.setdefault(template(entry.tensor), {})
        layers.setdefault(entry.tensor.layer, []).append(entry)
    lines = [line for path, layers in templates.items() for line in _fold_layers(path, layers, alike)]
    return tuple(sorted(lines, key=lambda line: line.name))


def template(tensor: Tensor) -> tuple[str, ...]:
    """A tensor's path and parameter with its decoder layer's number left open."""
    path = tensor.path
    if tensor.layer is not None:
        at = path.index(str(tensor.layer))
        path = (*path[:at], LAYER, *path[at + 1 :])
    return (*path, tensor.parameter)


_Run = tuple[range | None, Entry]


def _fold_layers(path: tuple[str, ...], layers: dict[int | None, list[Entry]], alike: Alike) -> Iterator[Folded]:
    if None in layers:
        yield from (_line(path, None, run) for run in _merge_experts(layers[None], alike))
        return
    held: list[_Run] = []
    content: list[Hashable] = []
    start = stop = 0
    for layer in sorted(number for number in layers if number is not None):
        runs = _merge_experts(layers[layer], alike)
        found = _content(runs, alike)
        if layer == stop and found == content:
            stop = layer + 1
            continue
        yield from (_line(path, range(start, stop), run) for run in held)
        held, content, start, stop = runs, found, layer, layer + 1
    yield from (_line(path, range(start, stop), run) for run in held)


def _content(runs: list[_Run], alike: Alike) -> list[Hashable]:
    return [(experts, alike(entry)) for experts, entry in runs]


def _merge_experts(entries: list[Entry], alike: Alike) -> list[_Run]:
    runs: list[_Run] = []
    for entry in sorted(entries, key=lambda e: e.tensor.experts.start if e.tensor.experts is not None else 0):
        experts = entry.tensor.experts
        if runs and experts is not None:
            before, held = runs[-1]
            if before is not None and before.stop == experts.start and alike(held) == alike(entry):
                runs[-1] = range(before.start, experts.stop), held
                continue
        runs.append((experts, entry))
    return runs


def _line(path: tuple[str, ...], layers: range | None, run: _Run) -> Folded:
    experts, entry = run
    words = {LAYER: braced(layers), EXPERT: braced(experts)}
    return Folded(".".join(words.get(word, word) for word in path if word), entry, layers, experts)


def braced(numbers: range | None) -> str:
    """A range as names write it: `7`, or `{3..60}` with both ends included."""
    if numbers is None:
        return ""
    if len(numbers) == 1:
        return str(numbers.start)
    return f"{{{numbers.start}..{numbers.stop - 1}}}"
