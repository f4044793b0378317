"""Many names as few: numbers that follow one another are a range, siblings stand in one pair of braces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from precc.contract.fold import braced
from precc_converter.names import NUMBER, Box

MOST = 3
"""Folded names that a finding shows."""

_Words: TypeAlias = tuple[str, ...]


def counted(names: Sequence[str], noun: str = "tensors") -> str:
    """The names, folded, the first few of them, and how many there are where that is more than one."""
    shown = folded(names)
    text = ", ".join(f"`{name}`" for name in shown[:MOST])
    more = f" and {len(shown) - MOST:,} more" if len(shown) > MOST else ""
    return text + more + (f" ({len(names):,} {noun})" if len(names) > 1 else "")


def folded(names: Iterable[str]) -> list[str]:
    """`model.layers.{0..47}.mlp.experts.{0..127}.{down,gate,up}_proj.weight` for 18,432 names."""
    boxes: dict[_Words, list[Box]] = {}
    for name in dict.fromkeys(names):
        words = tuple(name.split("."))
        numbers = tuple(range(int(word), int(word) + 1) for word in words if word.isdecimal())
        boxes.setdefault(tuple(NUMBER if word.isdecimal() else word for word in words), []).append(numbers)
    siblings: dict[tuple[_Words, _Words, Box], list[str]] = {}
    for opened, found in boxes.items():
        for box in _merged(found):
            siblings.setdefault((opened[:-2], opened[-1:], box), []).append("".join(opened[-2:-1]))
    return [_text(head, middle, tail, box) for (head, tail, box), middle in siblings.items()]


def _merged(boxes: list[Box]) -> list[Box]:
    """Boxes that differ along one axis only, and touch there, are one; the last axis first."""
    for axis in reversed(range(len(boxes[0]))):
        rows: dict[tuple[Box, Box], list[range]] = {}
        for box in boxes:
            rows.setdefault((box[:axis], box[axis + 1 :]), []).append(box[axis])
        boxes = [(*low, run, *high) for (low, high), runs in rows.items() for run in _runs(runs)]
    return boxes


def _runs(ranges: list[range]) -> list[range]:
    runs: list[range] = []
    for one in sorted(ranges, key=lambda numbers: numbers.start):
        if runs and runs[-1].stop == one.start:
            runs[-1] = range(runs[-1].start, one.stop)
        else:
            runs.append(one)
    return runs


def _text(head: _Words, middle: list[str], tail: _Words, box: Box) -> str:
    own = [_braced(sorted(middle))] if middle != [""] else []
    numbers = iter(box)
    return ".".join(braced(next(numbers)) if word == NUMBER else word for word in (*head, *own, *tail))


def _braced(words: list[str]) -> str:
    if len(words) == 1:
        return words[0]
    tail = "_proj" if all(word.endswith("_proj") for word in words) else ""
    return f"{{{','.join(word.removesuffix(tail) for word in words)}}}{tail}"
