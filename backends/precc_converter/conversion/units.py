"""What is converted together: one stored tensor, or the tensors that share one outer scale."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from precc.contract import Contract, Entry
from precc.formats.storage import Part
from precc.graph.model import EXPERT, natural
from precc_converter.stored import parts_of
from precc_converter.written import StoredTensor, Written, parts_stacks, written

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Member:
    """One tensor of the contract under its stored name, and what the plan says of it."""

    name: str
    made: Written

    @property
    def sources(self) -> Iterator[tuple[str, StoredTensor]]:
        """What is read for it: name, dtype and shape; codes first, then what stands beside them. Of a stack that is
        stored one by one, each of these for all experts before the next."""
        return ((name, stored) for stored in self.made.sources for name in self.names(stored))

    @property
    def outputs(self) -> Iterator[tuple[str, StoredTensor]]:
        """What is written for it, one stored tensor an item, ranges of experts counted out."""
        return ((name, stored) for stored in self.made.outputs for name in self.names(stored))

    def names(self, stored: StoredTensor) -> Iterator[str]:
        """The names that one of its sources or outputs has: as many as it stands for."""
        return (beside(self.name, word) for word in counted_out(stored.beside))

    @property
    def is_stack(self) -> bool:
        """Whether it holds all experts of a layer."""
        return self.made.stack is not None or len(self.made.outputs[0].shape) > 2

    @property
    def experts(self) -> int:
        """How many matrices it holds."""
        if not self.is_stack:
            return 1
        return self.made.stack.experts if self.made.stack else self.made.outputs[0].shape[0]

    def output_major(self, matrix: Tensor) -> Tensor:
        """One of its matrices with the contraction axis last; of one that is so, the order of axes in the source."""
        return matrix if self.made.axis in (None, 1 + self.is_stack) else matrix.t()


@dataclass(frozen=True)
class Unit:
    """What one worker holds at a time: members whose NVFP4 outer scale is one, or a single one."""

    members: tuple[Member, ...]

    @property
    def name(self) -> str:
        """The name of its first member, which orders it."""
        return self.members[0].name

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        """Everything that has to be there before it can be converted."""
        return tuple(name for member in self.members for name, _ in member.sources)

    @cached_property
    def outputs(self) -> Mapping[str, StoredTensor]:
        """Everything that it becomes, by name."""
        return {name: stored for member in self.members for name, stored in member.outputs}

    @property
    def is_kept(self) -> bool:
        """Whether nothing of it is quantized: all its members keep their codes and scales."""
        return all(member.made.action == "copy" for member in self.members)

    @property
    def bytes_in(self) -> int:
        return sum(stored.bytes for member in self.members for _, stored in member.sources)

    @property
    def bytes_out(self) -> int:
        return sum(member.made.bytes for member in self.members)


def units_of(contract: Contract) -> tuple[Unit, ...]:
    """Every tensor of a contract in the units of its plan, in natural order of their names.

    Raises KeyError for a format or a source that the converter lacks.
    """
    groups: dict[str, list[_Placed]] = {}
    with uncollected():
        apart = parts_stacks(contract)
        for entry in contract.entries:
            for group, placed in _members(entry, written(entry, contract.model, apart)):
                groups.setdefault(group, []).append(placed)
        ordered = sorted(map(_sorted, groups.values()), key=_first)
        return tuple(Unit(tuple(member for _, member in placed)) for placed in ordered)


@contextmanager
def uncollected() -> Iterator[None]:
    """This has many objects made at once, none of them garbage: a collector that looks for some takes most of the time,
    and all the more in a trainer, whose own objects it looks through as well."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_Order: TypeAlias = tuple[tuple[bool, int, str], ...]
"""What `natural` makes of a name."""

_Placed: TypeAlias = tuple[_Order, Member]
_order = itemgetter(0)


def _sorted(placed: list[_Placed]) -> list[_Placed]:
    """The members of one unit in their order."""
    return placed if len(placed) == 1 else sorted(placed, key=_order)


def _first(placed: list[_Placed]) -> _Order:
    """What orders a unit: its first member."""
    return placed[0][0]


def _members(entry: Entry, made: Written) -> Iterator[tuple[str, _Placed]]:
    """Each expert's member, or the one, under the name of the group that it is converted in.

    Their places in the order are worked out for all experts at once: of 69,000 names that takes seconds.
    """
    tensor = entry.tensor
    end = f".{tensor.parameter}" if tensor.parameter else ""
    shared = f"{made.group} (outer scale)" if made.group else ""
    if tensor.experts is None:
        name = tensor.module + end
        yield shared or name, (tuple(natural(name)), Member(name, made))
        return
    head, _, tail = f"{'.'.join(tensor.path)}{end}".partition(EXPERT)
    before, after = natural(head), natural(tail)
    for expert in tensor.experts:
        name = f"{head}{expert}{tail}"
        order = (*before, (True, expert, str(expert)), *after)
        yield shared.replace(EXPERT, str(expert)) or name, (order, Member(name, made))


def named_parts(member: Member) -> Iterator[tuple[str, Part]]:
    """What is read for a member in low precision, each tensor with what it holds."""
    assert member.made.form is not None
    for stored, part in zip(member.made.sources, cycle(parts_of(member.made.form).values()), strict=False):
        yield from ((name, part) for name in member.names(stored))


def batches(units: Iterable[Unit], most: int) -> Iterator[tuple[Unit, ...]]:
    """Units in their order, parted wherever those so far read as many bytes as `most`, or more."""
    held: list[Unit] = []
    size = 0
    for unit in units:
        held.append(unit)
        size += unit.bytes_in
        if size >= most:
            yield tuple(held)
            held, size = [], 0
    if held:
        yield tuple(held)


def beside(name: str, word: str) -> str:
    """The name of a tensor stored beside a weight: its last word replaced, or none if there is nothing to replace."""
    return f"{name.rpartition('.')[0]}.{word}".lstrip(".") if word else name


_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def counted_out(word: str) -> Iterator[str]:
    """The words that a word with one range stands for: `{0..1}.weight` is `0.weight` and `1.weight`."""
    match = _RANGE.search(word)
    if match is None:
        yield word
        return
    for number in range(int(match[1]), int(match[2]) + 1):
        yield f"{word[: match.start()]}{number}{word[match.end() :]}"


def of_expert(word: str, expert: int) -> str:
    """The one of those words that is an expert's."""
    return _RANGE.sub(str(expert), word, count=1)
