"""Names that stand for ranges: `model.layers.{3..60}.mlp.experts.{0..255}.gate_proj.weight`.

A name is a row of words; its numbers, ranges or single ones, span a box. Nothing here lists a box's members.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from precc.contract.fold import braced
from precc.graph.model import EXPERT, Tensor

Box: TypeAlias = tuple[range, ...]

NUMBER = "#"
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}|(\d+)")
_WORD = re.compile(r"(?:\{\d+\.\.\d+\}|[^.{}]+)")


@dataclass(frozen=True, slots=True)
class Name:
    """A name with its numbers taken out: `words` have `#` in their places, and `box` are the numbers."""

    words: tuple[str, ...]
    box: Box

    @property
    def count(self) -> int:
        """How many names this stands for."""
        return prod(map(len, self.box))

    def __str__(self) -> str:
        numbers = iter(self.box)
        return ".".join(braced(next(numbers)) if word == NUMBER else word for word in self.words)


def parse_name(text: str) -> Name:
    """This reads a name as plans write it. Raises ValueError."""
    words = _WORD.findall(text)
    if not words or ".".join(words) != text:
        raise ValueError(f"{text!r} is not a tensor name with ranges")
    return name_of(words)


def name_of(words: list[str]) -> Name:
    """This takes the numbers out of a name's words. Raises ValueError on an empty range."""
    kept, box = [], []
    for word in words:
        match = _RANGE.fullmatch(word)
        kept.append(NUMBER if match else word)
        if match:
            box.append(_numbers(match))
    return Name(tuple(kept), tuple(box))


def tensor_name(tensor: Tensor) -> Name:
    """This is the name of a tensor, or of a range of experts' tensors."""
    path = [braced(tensor.experts) if word == EXPERT else word for word in tensor.path]
    return name_of([*path, tensor.parameter] if tensor.parameter else path)


def intersection(one: Box, other: Box) -> Box | None:
    """This is what two boxes have in common; None for nothing."""
    common = []
    for a, b in zip(one, other, strict=True):
        start, stop = max(a.start, b.start), min(a.stop, b.stop)
        if start >= stop:
            return None
        common.append(range(start, stop))
    return tuple(common)


def _numbers(match: re.Match[str]) -> range:
    first, last, single = match.groups()
    numbers = range(int(single), int(single) + 1) if single else range(int(first), int(last) + 1)
    if not numbers:
        raise ValueError(f"{match[0]} is an empty range")
    return numbers
