"""How findings speak of tensors: counts, and names that stand for many."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from precc.contract.entry import Entry
from precc.contract.fold import fold


def amount(number: int, noun: str) -> str:
    """`1 tensor`, `18,867 tensors`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def billions(number: int) -> str:
    """A parameter count as people say it: `4.8 B`, `302 M`."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def tensors_of(entries: Iterable[Entry]) -> int:
    """How many tensors entries stand for, experts counted one by one."""
    return sum(entry.tensor.count for entry in entries)


def folded_names(entries: Sequence[Entry], most: int = 3) -> str:
    """The names of entries with their ranges of layers and experts, the first few of them.

    Names that differ in their last word are one: `model.layers.{0..47}.mlp.experts.{0..127}.{down,gate,up}_proj`.
    """
    siblings: dict[str, list[str]] = {}
    for line in fold(entries, lambda _: None):
        parent, _, last = line.name.removesuffix(".weight").rpartition(".")
        siblings.setdefault(parent, []).append(last)
    names = [f"`{parent}{'.' if parent else ''}{_braced(last)}`" for parent, last in siblings.items()]
    if len(names) <= most:
        return listed(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def counted_names(entries: Sequence[Entry]) -> str:
    """The names of entries, and how many tensors they stand for where that is more than one."""
    total = tensors_of(entries)
    return folded_names(entries) + (f" ({total:,} tensors)" if total > 1 else "")


def _braced(words: list[str]) -> str:
    if len(words) == 1:
        return words[0]
    tail = "_proj" if all(word.endswith("_proj") for word in words) else ""
    return f"{{{','.join(word.removesuffix(tail) for word in words)}}}{tail}"


def outer_layers(found: Collection[int], layers: int) -> str:
    """`layers[:2]` or `layers[-8:]` where decoder layers are the first or the last of so many; empty for all others."""
    count = len(found)
    if not 0 < count < layers:
        return ""
    ends = {f"layers[:{count}]": range(count), f"layers[-{count}:]": range(layers - count, layers)}
    return next((text for text, end in ends.items() if set(end) == set(found)), "")


def listed(words: Sequence[str], joint: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {joint} {words[-1]}"
