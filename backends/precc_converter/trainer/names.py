"""Both directions between the trainer's names and the checkpoint's, for one model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from precc.graph.model import EXPERT, ModelGraph
from precc_converter.trainer.parameters import Parameter, numbered, parameters_of
from precc_converter.trainer.spelling import Spelling, read_name
from precc_converter.trainer.stacks import SLICE, read_slice

_EXPERT = re.compile(r"(\.experts?\.)\d+(?=\.)")


@dataclass(frozen=True, slots=True)
class Place:
    """One parameter as it comes from the trainer: which, and of which expert."""

    parameter: Parameter
    expert: int | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """What all spellings of its name have in common."""
        return self.parameter.name, self.expert

    def names(self) -> Iterator[str]:
        """The checkpoint's names of the tensors that lie in it, copies too."""
        for member in self.parameter.members:
            yield from (numbered(name, self.expert) for name in member.names)


class UnknownName(ValueError):
    """A name that the model has no tensor for; `nearest` are known names like it."""

    def __init__(self, name: str, nearest: tuple[str, ...], why: str = "") -> None:
        meant = f"; did you mean `{nearest[0]}`?" if nearest else ""
        super().__init__(f"`{name}` is no parameter of this model{why}{meant}")
        self.name = name
        self.nearest = nearest


class TrainerNames:
    """The parameters of a model by the trainer's names and by the checkpoint's.

    Numbers of layers and experts are global: see `precc_converter.trainer.ranks` for a rank's own. Names carry no
    wrapper's prefix (`module.`). Any spelling is read; `spelling` is what is written.
    """

    def __init__(self, model: ModelGraph, spelling: Spelling | None = None, vocabulary_rows: int | None = None) -> None:
        self.spelling = spelling or Spelling()
        self.parameters = parameters_of(model, vocabulary_rows)
        self._by_name = {parameter.name: parameter for parameter in self.parameters}
        self._by_name |= {parameter.alone: parameter for parameter in self.parameters if parameter.alone}
        self._by_checkpoint = {
            name: parameter for parameter in self.parameters for member in parameter.members for name in member.names
        }

    def find(self, name: str) -> Place | None:
        """The place of a parameter by the trainer's name; None for a name that it cannot have."""
        template, expert = read_name(name)
        parameter = self._by_name.get(template)
        return Place(parameter, expert) if parameter is not None and _has(parameter, expert) else None

    def place(self, name: str) -> Place:
        """The same. Raises UnknownName."""
        found = self.find(name)
        if found is None:
            raise self.unknown(name)
        return found

    def find_stored(self, name: str) -> Place | None:
        """The place of the parameter that holds a tensor, by the checkpoint's name; None for a name that it has not.

        Of a whole stack of experts it is that of the first.
        """
        for template, expert in _openings(name):
            parameter = self._by_checkpoint.get(template)
            if parameter is None and template + SLICE in self._by_checkpoint:
                parameter = self._by_checkpoint[template + SLICE]
                expert = next(iter(parameter.experts or ()), None)
            if parameter is not None and _has(parameter, expert):
                return Place(parameter, expert)
        return None

    def holding(self, name: str) -> Place:
        """The same. Raises UnknownName."""
        found = self.find_stored(name)
        if found is None:
            raise self.unknown(name)
        return found

    def unknown(self, name: str) -> UnknownName:
        """The refusal of a name, with those most like it on either side."""
        spelled = {self.spelling.write(parameter): parameter for parameter in self.parameters} | self._by_checkpoint
        asked = name.removeprefix("module.")
        found = get_close_matches(_opened(asked), spelled, n=3, cutoff=0.6)
        nearest = (numbered(template, _like(asked, spelled[template])) for template in found)
        return UnknownName(name, tuple(nearest), self._hint(name))

    def places(self) -> Iterator[Place]:
        """Every parameter, each expert's for itself."""
        for parameter in self.parameters:
            for expert in parameter.experts or (None,):
                yield Place(parameter, expert)

    def written(self, place: Place) -> str:
        """The trainer's name for a place."""
        return self.spelling.write(place.parameter, place.expert)

    def _hint(self, name: str) -> str:
        if name in ("output_layer.weight", "lm_head.weight"):
            return ", whose output layer is tied to its embedding: leave this copy out"
        return ": names come without wrappers" if name.startswith("module.") else ""


def _has(parameter: Parameter, expert: int | None) -> bool:
    if parameter.experts is None:
        return expert is None
    return expert is not None and expert in parameter.experts


def _openings(name: str) -> Iterator[tuple[str, int | None]]:
    """A checkpoint's name as it stands, and with each of its numbers taken for an expert's."""
    yield name, None
    whole, number = read_slice(name)
    if number is not None:
        yield whole + SLICE, number
    words = name.split(".")
    for at, word in enumerate(words):
        if word.isdecimal() and str(int(word)) == word:
            yield ".".join((*words[:at], EXPERT, *words[at + 1 :])), int(word)


def _opened(name: str) -> str:
    """A name with the number that looks most like an expert's left open, if any does."""
    template, expert = read_name(name)
    return template if expert is not None else _EXPERT.sub(rf"\1{EXPERT}", name, count=1)


def _like(name: str, parameter: Parameter) -> int | None:
    """The expert that a name most likely means; None for a parameter of none."""
    if parameter.experts is None:
        return None
    numbers = re.findall(r"\d+", name)
    meant = int(numbers[-1]) if numbers else 0
    return meant if meant in parameter.experts else parameter.experts[-1]
