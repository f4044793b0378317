"""Outer scales that tensors share: a server takes one of them for all, so they have to be one value."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path

from precc.graph.headers import Located
from precc_converter.auditing.faults import CONVERT, IMPOSSIBLE, NOT_SHARED, UNREADABLE, Fault, Faults
from precc_converter.auditing.promises import Promise

_APART = Fault(
    NOT_SHARED,
    "weights that a server multiplies as one have outer scales of their own",
    f"{CONVERT}: it makes the scale of such weights of their common amax",
)
_NO_SCALE = Fault(IMPOSSIBLE, "an outer scale is not above zero and finite", CONVERT)
_UNREAD = Fault(UNREADABLE, "bytes cannot be read", "see to the file")


def compare_outer_scales(promises: Iterable[Promise], right: Mapping[str, Located]) -> Faults:
    """This compares the bytes of the scales of each group; those that are not there are left aside."""
    groups: dict[str, list[str]] = {}
    for promise in promises:
        name = promise.outer_scale
        if name is not None and name in right:
            groups.setdefault(promise.group or "", []).append(name)
    members = {name: right[name] for names in groups.values() if len(names) > 1 for name in names}
    values, faults = dict(_four_bytes(members)), Faults()
    for names in groups.values():
        _compare([name for name in names if name in values], values, right, faults)
    for name in members.keys() - values.keys():
        faults.add(_UNREAD, [name], right[name].file)
    return faults


def _compare(names: list[str], values: Mapping[str, bytes], right: Mapping[str, Located], faults: Faults) -> None:
    wrong = [name for name in names if not _is_scale(values[name])]
    for name in wrong:
        faults.add(_NO_SCALE, [name], right[name].file)
    if not wrong and len({values[name] for name in names}) > 1:
        for name in names:
            faults.add(_APART, [name], right[name].file)


def _is_scale(value: bytes) -> bool:
    (number,) = struct.unpack("<f", value)
    return isfinite(number) and number > 0


def _four_bytes(members: Mapping[str, Located]) -> Iterator[tuple[str, bytes]]:
    """The FP32 value of each, file by file and in the order of their bytes."""
    by_file: dict[Path, list[tuple[int, str]]] = {}
    for name, located in members.items():
        by_file.setdefault(located.file, []).append((located.start, name))
    for file, places in by_file.items():
        with suppress(OSError):
            handle = os.open(file, os.O_RDONLY)
            try:
                yield from ((name, os.pread(handle, 4, start)) for start, name in sorted(places))
            finally:
                os.close(handle)
