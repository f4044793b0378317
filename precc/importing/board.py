"""Which tensors the rules so far decide rightly, and which rule would set the most of the wrong ones right.

The counts that a rule is judged by are kept for each phrase, and a step corrects those that it moves: a step costs what
it changes, and not the whole model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, groupby
from operator import itemgetter
from typing import NamedTuple

from precc.formats import Decision, kept
from precc.importing.vocabulary import EVERYTHING, Key, Phrase


@dataclass(frozen=True, slots=True)
class Cell:
    """All weights of one template in one layer: what is wanted, and what a policy without rules leaves it."""

    key: Key
    layer: int | None
    wanted: Decision
    left: Decision
    is_open: bool
    is_gemm: bool


class Step(NamedTuple):
    """A rule in the making: a phrase, the layers it is for (None for all), and the decision."""

    phrase: Phrase
    layers: frozenset[int] | None
    decision: Decision

    def reaches(self, cell: Cell) -> bool:
        """Whether the rule decides a cell."""
        return (self.layers is None or cell.layer in self.layers) and cell.key in self.phrase.reached

    def gives(self, cell: Cell) -> Decision:
        """What it decides."""
        return self.decision if cell.is_gemm or self.decision.is_quantized else kept(self.decision.weight.format)


class _Tally:
    """Of the cells that a phrase reaches: how many are wrong and right, by what is wanted (numbered) and by layer."""

    __slots__ = ("right", "wrong")

    def __init__(self, decisions: int) -> None:
        self.wrong: list[Counter[int | None]] = [Counter() for _ in range(decisions)]
        self.right: list[Counter[int | None]] = [Counter() for _ in range(decisions)]

    def variants(self, phrase: Phrase, wanted: int, decision: Decision) -> Iterator[tuple[float, Step]]:
        """The phrase for all layers, and for those alone where it does no harm, each with what it is worth."""
        gain = +self.wrong[wanted]
        if not gain:
            return
        harm = sum((right for number, right in enumerate(self.right) if number != wanted), Counter[int | None]())
        net = gain.total() - harm.total()
        if phrase.text != EVERYTHING and net > 0:
            yield net - phrase.effort - (1.5 if harm else 0), Step(phrase, None, decision)
        layers = frozenset(layer for layer in gain if layer is not None and layer not in harm)
        if layers:
            effort = phrase.effort + 0.5 + (0.2 * len(layers) if len(list(runs_of(layers))) > 1 else 0)
            yield sum(gain[layer] for layer in layers) - effort, Step(phrase, layers, decision)


class Board:
    """The cells under a default, and what each phrase could still set right."""

    def __init__(self, cells: Sequence[Cell], spoken: Sequence[Phrase], default: Decision) -> None:
        self.default = default
        self._cells, self._spoken = cells, spoken
        self._decisions = list(dict.fromkeys(cell.wanted for cell in cells))
        numbers = {decision: number for number, decision in enumerate(self._decisions)}
        self._wanted = [numbers[cell.wanted] for cell in cells]
        self._is_wrong = [self._decided(cell, ()) != cell.wanted for cell in cells]
        at: dict[Key, list[int]] = {}
        for place, cell in enumerate(cells):
            at.setdefault(cell.key, []).append(place)
        self._places = [[place for key in phrase.reached for place in at[key]] for phrase in spoken]
        self._phrases: list[list[int]] = [[] for _ in cells]
        self._tallies = [_Tally(len(self._decisions)) for _ in spoken]
        for number, places in enumerate(self._places):
            for place in places:
                self._phrases[place].append(number)
                self._count(number, place, 1)
        self._variants: dict[int, dict[int, list[tuple[float, Step]]]] = {}

    def best(self) -> Step | None:
        """The rule that sets the most wrong cells right, and the fewest right ones wrong; None where none is wrong."""
        missing = dict.fromkeys(compress(self._wanted, self._is_wrong))
        every = range(len(self._spoken))
        found = [scored for wanted in missing for number in every for scored in self._scored(number)[wanted]]
        return max(found, key=itemgetter(0))[1] if found else None

    def apply(self, step: Step) -> None:
        """This decides what a rule reaches, and counts again what that moves."""
        for place in self._reached(step):
            is_wrong = step.gives(self._cells[place]) != self._cells[place].wanted
            if is_wrong != self._is_wrong[place]:
                for number in self._phrases[place]:
                    self._count(number, place, -1)
                self._is_wrong[place] = is_wrong
                for number in self._phrases[place]:
                    self._count(number, place, 1)
                    self._variants.pop(number, None)

    def suffices(self, steps: Sequence[Step], changed: Step) -> bool:
        """Whether steps decide as wanted what one reaches that was moved among them, or taken out."""
        cells = (self._cells[place] for place in self._reached(changed))
        return all(self._decided(cell, steps) == cell.wanted for cell in cells)

    def _decided(self, cell: Cell, steps: Sequence[Step]) -> Decision:
        """What the last of the steps gives that reaches a cell."""
        last = next((step for step in reversed(steps) if step.reaches(cell)), None)
        return last.gives(cell) if last else self.default if cell.is_open else cell.left

    def _reached(self, step: Step) -> Iterator[int]:
        layers, places = step.layers, self._places[self._spoken.index(step.phrase)]
        return (place for place in places if layers is None or self._cells[place].layer in layers)

    def _count(self, number: int, place: int, change: int) -> None:
        tally = self._tallies[number]
        counts = tally.wrong if self._is_wrong[place] else tally.right
        counts[self._wanted[place]][self._cells[place].layer] += change

    def _scored(self, number: int) -> dict[int, list[tuple[float, Step]]]:
        """The rules that begin with a phrase, by the decision wanted."""
        if number not in self._variants:
            phrase, tally = self._spoken[number], self._tallies[number]
            every = enumerate(self._decisions)
            self._variants[number] = {at: list(tally.variants(phrase, at, decision)) for at, decision in every}
        return self._variants[number]


def runs_of(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Numbers in ascending runs without a gap."""
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        yield [number for _, number in run]
