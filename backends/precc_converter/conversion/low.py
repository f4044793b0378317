"""Sources in low precision, before anything is written: whether what stands beside the codes is as it has to be.

Headers say dtypes and shapes; the few bytes of the shapes of packed integers, and of the outer scales that weights
share, are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from precc.graph.forms import Part
from precc.graph.headers import Located, Stored
from precc_converter.conversion.files import Files
from precc_converter.conversion.findings import UNLIKE, UNREADABLE, NotConverted, counted, stop
from precc_converter.conversion.units import Member, Unit, named_parts
from precc_converter.stored import words_of
from precc_converter.written import CODES_A_WORD, StoredTensor

_GIVE = "fetch the checkpoint again, or give the unquantized one"
_AGAIN = "decide another format for these weights, so that their numbers are quantized again"


def without_alike(
    faults: Mapping[str, StoredTensor], units: Iterable[Unit], tensors: Mapping[str, Located]
) -> dict[str, StoredTensor]:
    """What is left of tensors that are not stored as usual, without those that are so in another tool's way: scales
    in another dtype, which holds the same numbers, and with axes of one more or fewer.

    Raises NotConverted for packed integers that are to be kept, and whose scales BF16 does not hold.
    """
    left = dict(faults)
    for member in _low(units):
        words = [*words_of(member.made.form).values()] if member.made.form else []
        for at, stored in enumerate(member.made.sources):
            part = words[at % len(words)]
            for name in member.names(stored):
                if name in left and _is_alike(tensors[name].stored, stored, part):
                    _check_kept(member, name, tensors[name].stored)
                    del left[name]
    return left


def _is_alike(own: Stored, stored: StoredTensor, part: Part) -> bool:
    alike = own.shape == stored.shape or (not part.exact and _bare(own.shape) == _bare(stored.shape))
    return alike and own.dtype in part.dtypes


def _check_kept(member: Member, name: str, own: Stored) -> None:
    if member.made.action == "copy" and member.made.weight.format == "int4" and own.dtype in ("F16", "F32"):
        raise stop(UNLIKE, f"`{name}` is {own.dtype}: INT4 is kept with scales in BF16, which does not hold it", _AGAIN)


def check_small(units: Iterable[Unit], tensors: Mapping[str, Located]) -> None:
    """This compares the shapes of packed integers with their codes, and the outer scales that kept weights share.

    Raises NotConverted with P601.
    """
    units = [unit for unit in units if any(member.made.form for member in unit.members)]
    shapes = dict(_shapes(units))
    groups = list(_shared(units))
    values = dict(_numbers({*shapes, *(name for group in groups for name in group)}, tensors))
    for name, shape in shapes.items():
        if values[name] != shape:
            said = f"says {[int(size) for size in values[name]]}, the codes beside it are of {list(shape)}"
            raise stop(UNLIKE, f"{tensors[name].file}: `{name}` {said}", _GIVE)
    apart = [group for group in groups if len({values[name] for name in group}) > 1]
    if apart:
        raise _not_shared([group[0] for group in apart], tensors)


def _low(units: Iterable[Unit]) -> Iterator[Member]:
    return (member for unit in units for member in unit.members if member.made.form is not None)


def _shapes(units: Iterable[Unit]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors that say the shape of packed integers, with what they have to say."""
    for member in _low(units):
        found: dict[str, list[str]] = {"codes": [], "shape": []}
        for name, part in named_parts(member):
            if part in found:
                found[part].append(name)
        rows = {name: stored.shape for name, stored in member.sources} if found["shape"] else {}
        for codes, name in zip(found["codes"], found["shape"], strict=False):
            *_, high, packed = rows[codes]
            yield name, (high, packed * CODES_A_WORD)


def _shared(units: Iterable[Unit]) -> Iterator[list[str]]:
    """The outer scales that have to be one: of weights that a server multiplies as one, and that stay as they are.

    Raises NotConverted where some of them stay, and others are quantized.
    """
    for unit in units:
        made = [member.made for member in unit.members]
        if made[0].weight.format != "nvfp4" or all(one.action != "copy" for one in made):
            continue
        if not unit.is_kept:
            raise stop(
                UNLIKE,
                f"`{unit.name}` and what it shares an outer scale with are not all stored in NVFP4",
                f"give them in one form, or {_AGAIN}",
            )
        outer = [[name for name, part in named_parts(member) if part == "outer_scale"] for member in unit.members]
        joined = [*map(list, zip(*outer, strict=True))] if len(outer) > 1 else _by_expert(unit.members[0], outer[0])
        yield from (group for group in joined if len(group) > 1)


def _by_expert(member: Member, outer: Sequence[str]) -> list[list[str]]:
    """The outer scales of each expert of a stack that is stored one by one; they come part by part."""
    return [list(outer[at :: member.experts]) for at in range(member.experts)]


def _not_shared(names: Sequence[str], tensors: Mapping[str, Located]) -> NotConverted:
    what = f"{tensors[names[0]].file}: {counted(names)}: gate and up have outer scales of their own, and a server takes"
    return stop(UNLIKE, f"{what} one for both", f"give a checkpoint whose gate and up share one, or {_AGAIN}")


def _numbers(names: Iterable[str], tensors: Mapping[str, Located]) -> Iterator[tuple[str, tuple[float, ...]]]:
    """The numbers in small tensors, file by file and in the order of their bytes. Raises NotConverted."""
    with Files() as files:
        for name in sorted(names, key=lambda name: (tensors[name].file, tensors[name].start)):
            located = tensors[name]
            data = bytearray(located.end - located.start)
            try:
                filled = files.fill(located.file, located.start, memoryview(data))
            except OSError as problem:
                raise _unread(name, located, problem.strerror or str(problem)) from None
            if filled < len(data):
                raise _unread(name, located, "the file ends before it")
            yield name, _unpacked(located.stored, bytes(data))


def _unread(name: str, located: Located, why: str) -> NotConverted:
    return stop(UNREADABLE, f"{located.file}: `{name}` cannot be read: {why}", "see to the file")


_LETTERS = {"I64": "q", "I32": "i", "F32": "f", "F16": "e"}


def _unpacked(stored: Stored, data: bytes) -> tuple[float, ...]:
    """The numbers that little-endian bytes hold; BF16 is the first half of FP32."""
    if stored.dtype == "BF16":
        data = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
    return struct.unpack(f"<{prod(stored.shape)}{_LETTERS.get(stored.dtype, 'f')}", data)


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its trailing axes of one."""
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return shape
