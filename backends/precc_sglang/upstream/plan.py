"""The small checkpoint as the converter's plan would write it: names and dtypes of the plan, small shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from precc.contract import Entry
from precc.contract.shrinking import SmallContract
from precc.graph.model import EXPERT
from precc_sglang.classes import CLASSES
from precc_sglang.upstream.expected import held, stored_entries
from precc_sglang.upstream.wire import Parameter

PLAN_PATH = "converter/plan.json"

_RANGE = re.compile(r"\{\d+\.\.\d+\}")
_NUMBERS = re.compile(r"\{(\d+)\.\.(\d+)\}|(\d+)")

Box = tuple[range, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the plan: the numbers that its name ranges over, the last words and dtypes of what it writes."""

    box: Box
    outputs: tuple[tuple[str, str], ...]


def planned(small: SmallContract, text: str) -> dict[str, Parameter]:
    """The tensors that the plan writes for a small model. Raises ValueError, KeyError, TypeError on what is no plan.

    A tensor without a line is not written; a line with more or fewer outputs than the format has parts writes them
    with the shapes of the parts in order.
    """
    lines = _lines(json.loads(text)["tensors"])
    tensors, built = {}, CLASSES.get(small.contract.model.architecture)
    for entry, origin in zip(small.contract.entries, small.origins, strict=True):
        line = _line_of(origin, lines)
        apart = line is not None and any(_RANGE.match(word) for word, _ in line.outputs)
        shapes = [parameter.shape for stored in stored_entries(entry, apart) for _, parameter in held(stored, built)]
        for at, (word, dtype) in enumerate(line.outputs if line else ()):
            shape = shapes[min(at, len(shapes) - 1)]
            for module in entry.tensor.modules():
                parent = module if entry.tensor.parameter else module.rpartition(".")[0]
                for name in _each_expert(word, entry.tensor.stacked):
                    tensors[f"{parent}.{name}"] = Parameter(dtype, shape)
    return tensors


def _each_expert(word: str, experts: int) -> Iterator[str]:
    """What an output of a stack is called for each expert of the small model; any other output's one word."""
    found = _RANGE.match(word)
    yield from (f"{expert}{word[found.end() :]}" for expert in range(experts)) if found else (word,)


def _lines(shown: list[dict[str, Any]]) -> Mapping[str, list[Line]]:
    """The lines by their names with the numbers left open."""
    table: dict[str, list[Line]] = {}
    for line in shown:
        stem = line["tensor"].rpartition(".")[0]
        outputs = tuple((output["name"].removeprefix(f"{stem}."), output["dtype"]) for output in line["outputs"])
        name, box = _opened(line["tensor"])
        table.setdefault(name, []).append(Line(box, outputs))
    return table


def _line_of(entry: Entry, lines: Mapping[str, list[Line]]) -> Line | None:
    tensor = entry.tensor
    first = "" if tensor.experts is None else str(tensor.experts.start)
    path = ".".join(first if word == EXPERT else word for word in tensor.path)
    name, box = _opened(f"{path}.{tensor.parameter}" if tensor.parameter else path)
    found = (line for line in lines.get(name, ()) if _holds(line.box, box))
    return next(found, None)


def _holds(large: Box, small: Box) -> bool:
    return all(one.start in numbers for numbers, one in zip(large, small, strict=True))


def _opened(name: str) -> tuple[str, Box]:
    """A name with its whole-word numbers left open, and these."""
    words, box = [], []
    for word in _words(name):
        match = _NUMBERS.fullmatch(word)
        words.append("#" if match else word)
        if match:
            first, last, single = match.groups()
            box.append(range(int(single or first), int(single or last) + 1))
    return ".".join(words), tuple(box)


def _words(name: str) -> Iterator[str]:
    """The words between dots; the two dots of a range are none."""
    yield from re.findall(r"(?:\{\d+\.\.\d+\}|[^.])+", name)
