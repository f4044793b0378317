"""From a decision for every tensor to a few rules, general ones first and exceptions behind.

Each step adds the rule that sets the most wrong tensors right (and the fewest right ones wrong), until none is wrong;
then rules that changed nothing are dropped, and those of one spec stand together. Every default that occurs is tried,
and the shortest result taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from precc.formats import BF16, Decision
from precc.graph.model import ModelGraph
from precc.importing.board import Board, Cell, Step, runs_of
from precc.importing.vocabulary import Phrase, brackets, key_of, phrases
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


def outline(decided: Sequence[Wanted], graph: ModelGraph) -> Outline:
    """The shortest outline that was found."""
    spoken = phrases((item.tensor for item in decided), graph.layers)
    cells = [_cell(item) for item in decided]
    tried = [_outline(Board(cells, spoken, default), graph.layers) for default in _defaults(decided)]
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
    return Cell(key_of(tensor), tensor.layer, item.decision, item.left, not is_closed(tensor), tensor.is_gemm)


def _outline(board: Board, layers: int) -> Outline:
    steps: list[Step] = []
    while (step := board.best()) is not None:
        steps.append(step)
        board.apply(step)
    steps = _together(_needed(steps, board), board)
    return Outline(board.default, tuple(_written(steps, layers)))


def _needed(steps: list[Step], board: Board) -> list[Step]:
    """The steps without those that change nothing."""
    for step in list(steps):
        fewer = [other for other in steps if other is not step]
        if board.suffices(fewer, step):
            steps = fewer
    return steps


def _together(steps: list[Step], board: Board) -> list[Step]:
    """The steps with those of one decision side by side, where the order is free: ahead, or else behind."""
    for step in list(steps):
        at = steps.index(step)
        before = [other for other in steps[:at] if other.decision == step.decision]
        if before and before[-1] is not steps[at - 1]:
            others = [other for other in steps if other is not step]
            last = others.index(before[-1]) + 1
            ahead = [*others[:last], step, *others[last:]]
            behind = [*(other for other in steps[:at] if other not in before), *before, *steps[at:]]
            ways = ((ahead, [step]), (behind, before))
            steps = next((way for way, moved in ways if all(board.suffices(way, one) for one in moved)), steps)
    return steps


def _written(steps: list[Step], layers: int) -> Iterator[Written]:
    for decision, run in groupby(steps, key=lambda step: step.decision):
        selectors = (text for phrase, chosen, _ in run for text in _selectors(phrase, chosen, layers))
        yield Written(tuple(dict.fromkeys(selectors)), decision)


def _selectors(phrase: Phrase, chosen: frozenset[int] | None, layers: int) -> Iterator[str]:
    """The phrase for its layers: a slice each where they are a few runs, else one list of numbers."""
    if chosen is None:
        yield phrase.within("")
        return
    runs = list(runs_of(chosen))
    for part in runs if len(runs) <= FEW_RUNS and len(chosen) > FEW_RUNS else [chosen]:
        yield phrase.within(brackets(part, layers))


FEW_RUNS = 3
