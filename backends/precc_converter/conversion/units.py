"""What is converted together: one stored tensor, or the tensors that share one outer scale."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from precc.contract import Contract, Entry
from precc.graph.model import EXPERT, natural
from precc_converter.written import StoredTensor, Written, written


@dataclass(frozen=True, slots=True)
class Member:
    """One tensor of the contract under its stored name, and what the plan says of it."""

    name: str
    made: Written

    @property
    def sources(self) -> Iterator[tuple[str, StoredTensor]]:
        """What is read for it: name, dtype and shape; the weight first, then its block scales."""
        return ((beside(self.name, stored.beside), stored) for stored in self.made.sources)

    @property
    def outputs(self) -> Iterator[tuple[str, StoredTensor]]:
        """What is written for it, one stored tensor an item, ranges of experts counted out."""
        return (
            (beside(self.name, word), stored) for stored in self.made.outputs for word in counted_out(stored.beside)
        )


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
    def bytes_in(self) -> int:
        return sum(stored.bytes for member in self.members for _, stored in member.sources)

    @property
    def bytes_out(self) -> int:
        return sum(member.made.bytes for member in self.members)


def units_of(contract: Contract) -> tuple[Unit, ...]:
    """Every tensor of a contract in the units of its plan, in natural order of their names.

    Raises KeyError for a format or a source that the converter lacks.
    """
    groups: dict[str, list[Member]] = {}
    for entry in contract.entries:
        for group, member in _members(entry, written(entry, contract.model)):
            groups.setdefault(group, []).append(member)
    units = (Unit(tuple(sorted(members, key=lambda member: natural(member.name)))) for members in groups.values())
    return tuple(sorted(units, key=lambda unit: natural(unit.name)))


def _members(entry: Entry, made: Written) -> Iterator[tuple[str, Member]]:
    """Each expert's member, or the one, under the name of the group that it is converted in."""
    tensor = entry.tensor
    experts = tensor.experts if tensor.experts is not None else (None,)
    for module, expert in zip(tensor.modules(), experts, strict=True):
        name = f"{module}.{tensor.parameter}" if tensor.parameter else module
        group = f"{made.group.replace(EXPERT, str(expert))} (outer scale)" if made.group else name
        yield group, Member(name, made)


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
