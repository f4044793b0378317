"""From a decision for every tensor to a few rules, general ones first and exceptions behind.

Each step adds the rule that sets the most wrong tensors right (and the fewest right ones wrong), until none is wrong;
then rules that changed nothing are dropped, and those of one spec stand together. Every default that occurs is tried,
and the shortest result taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from precc.formats import BF16, Decision, kept
from precc.graph.model import ModelGraph
from precc.importing.vocabulary import EVERYTHING, Key, Phrase, brackets, key_of, phrases
from precc.importing.wanted import Wanted
from precc.records import record
from precc.resolve.bind import is_closed


@record
class Written:
    """One rule: its selectors, and the decision that its spec spells."""

    selectors: tuple[str, ...]
    decision: Decision


@record
class Outline:
    """A policy before it is text: the default, and the rules in order."""

    default: Decision
    rules: tuple[Written, ...]

    @property
    def selectors(self) -> tuple[str, ...]:
        """The selectors of all rules, in order."""
        return tuple(text for rule in self.rules for text in rule.selectors)

    @property
    def length(self) -> tuple[int, int]:
        """What makes one outline shorter than another: rules, then selectors, each with its letters."""
        return len(self.rules), sum(_SELECTOR + len(text) for text in self.selectors)


_SELECTOR = 12
"""As many letters as another selector costs a reader."""


@dataclass
class Cell:
    """All weights of one template in one layer: what is wanted, and what the rules so far give."""

    key: Key
    layer: int | None
    wanted: Decision
    left: Decision
    is_open: bool
    is_gemm: bool
    now: Decision

    @property
    def is_wrong(self) -> bool:
        return self.now != self.wanted


class _Step(NamedTuple):
    """A rule in the making: a phrase, the layers it is for (None for all), and the decision."""

    phrase: Phrase
    layers: frozenset[int] | None
    decision: Decision


def outline(decided: Sequence[Wanted], graph: ModelGraph) -> Outline:
    """The shortest outline that was found."""
    spoken = phrases((item.tensor for item in decided), graph.layers)
    cells = [_cell(item) for item in decided]
    tried = [_outline(cells, default, spoken, graph.layers) for default in _defaults(decided)]
    return min(tried, key=lambda found: found.length)


def _defaults(decided: Sequence[Wanted]) -> list[Decision]:
    """The decisions that open tensors have, the one of the most parameters in front."""
    weight: dict[Decision, int] = {BF16: 0}
    for item in decided:
        if not is_closed(item.tensor):
            weight[item.decision] = weight.get(item.decision, 0) + item.tensor.parameters
    return sorted(weight, key=lambda decision: -weight[decision])


def _cell(item: Wanted) -> Cell:
    tensor = item.tensor
    is_open = not is_closed(tensor)
    return Cell(key_of(tensor), tensor.layer, item.decision, item.left, is_open, tensor.is_gemm, item.left)


def _outline(cells: list[Cell], default: Decision, spoken: tuple[Phrase, ...], layers: int) -> Outline:
    _start(cells, default)
    steps: list[_Step] = []
    while wrong := [cell for cell in cells if cell.is_wrong]:
        step = _best(wrong, cells, spoken)
        steps.append(step)
        _apply(step, cells)
    steps = _together(_needed(steps, cells, default), cells, default)
    return Outline(default, tuple(_written(steps, layers)))


# --- one step ----------------------------------------------------------------------------------------


def _best(wrong: list[Cell], cells: list[Cell], spoken: tuple[Phrase, ...]) -> _Step:
    by_key: dict[Key, list[Cell]] = {}
    for cell in cells:
        by_key.setdefault(cell.key, []).append(cell)
    found: list[tuple[float, _Step]] = []
    for decision in dict.fromkeys(cell.wanted for cell in wrong):
        keys = {cell.key for cell in wrong if cell.wanted == decision}
        for phrase in spoken:
            if not phrase.reached.isdisjoint(keys):
                found.extend(_variants(phrase, decision, [c for key in phrase.reached for c in by_key[key]]))
    return max(found, key=lambda scored: scored[0])[1]


def _variants(phrase: Phrase, decision: Decision, reached: list[Cell]) -> Iterator[tuple[float, _Step]]:
    """The phrase for all layers, and for those alone where it does no harm, each with what it is worth."""
    gain: dict[int | None, int] = {}
    harm: dict[int | None, int] = {}
    for cell in reached:
        if cell.wanted == decision:
            gain[cell.layer] = gain.get(cell.layer, 0) + cell.is_wrong
        elif cell.now != decision:
            harm[cell.layer] = harm.get(cell.layer, 0) + (not cell.is_wrong)
    net, lost = sum(gain.values()) - sum(harm.values()), sum(harm.values())
    if phrase.text != EVERYTHING and net > 0:
        yield net - phrase.effort - (1.5 if lost else 0), _Step(phrase, None, decision)
    layers = frozenset(layer for layer, count in gain.items() if layer is not None and count and not harm.get(layer, 0))
    if layers:
        runs = len(list(_runs(layers)))
        effort = phrase.effort + 0.5 + (0.2 * len(layers) if runs > 1 else 0)
        yield sum(gain[layer] for layer in layers) - effort, _Step(phrase, layers, decision)


def _runs(numbers: Iterable[int]) -> Iterator[list[int]]:
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        yield [number for _, number in run]


def _apply(step: _Step, cells: list[Cell]) -> None:
    phrase, layers, decision = step
    for cell in cells:
        if cell.key in phrase.reached and (layers is None or cell.layer in layers):
            cell.now = decision if cell.is_gemm or decision.is_quantized else kept(decision.weight.format)


# --- all steps ---------------------------------------------------------------------------------------


def _needed(steps: list[_Step], cells: list[Cell], default: Decision) -> list[_Step]:
    """The steps without those that change nothing."""
    for step in list(steps):
        fewer = [other for other in steps if other is not step]
        if _suffices(fewer, cells, default):
            steps = fewer
    return steps


def _together(steps: list[_Step], cells: list[Cell], default: Decision) -> list[_Step]:
    """The steps with those of one decision side by side, where the order is free."""
    for step in list(steps):
        at = steps.index(step)
        before = [place for place in range(at) if steps[place].decision == step.decision]
        if before and before[-1] != at - 1:
            others = [other for other in steps if other is not step]
            moved = [*others[: before[-1] + 1], step, *others[before[-1] + 1 :]]
            steps = moved if _suffices(moved, cells, default) else steps
    return steps


def _suffices(steps: list[_Step], cells: list[Cell], default: Decision) -> bool:
    """Whether these steps decide every tensor as wanted."""
    _start(cells, default)
    for step in steps:
        _apply(step, cells)
    return not any(cell.is_wrong for cell in cells)


def _start(cells: list[Cell], default: Decision) -> None:
    for cell in cells:
        cell.now = default if cell.is_open else cell.left


def _written(steps: list[_Step], layers: int) -> Iterator[Written]:
    for decision, run in groupby(steps, key=lambda step: step[2]):
        selectors = (text for phrase, chosen, _ in run for text in _selectors(phrase, chosen, layers))
        yield Written(tuple(dict.fromkeys(selectors)), decision)


def _selectors(phrase: Phrase, chosen: frozenset[int] | None, layers: int) -> Iterator[str]:
    """The phrase for its layers: a slice each where they are a few runs, else one list of numbers."""
    if chosen is None:
        yield phrase.within("")
        return
    runs = list(_runs(chosen))
    for part in runs if len(runs) <= FEW_RUNS and len(chosen) > FEW_RUNS else [chosen]:
        yield phrase.within(brackets(part, layers))


FEW_RUNS = 3
