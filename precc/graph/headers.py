"""The headers of safetensors files: names, dtypes and shapes, without the weights and without the library.

A file is an eight-byte little-endian length, that many bytes of JSON, then the weights.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple

from precc.graph.errors import ModelError, shorten

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""

MAX_AXES = 8
MAX_AXIS = 2**48

_HELP = "The file may be truncated or not be a safetensors file; fetch it again."

_READABLE = "See to the file, and whether this user may read it."

_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""What one element of a dtype takes, for all dtypes of the format."""

KINDS = {
    stat.S_IFDIR: "is a folder, no file",
    stat.S_IFIFO: "is a named pipe, no file",
    stat.S_IFSOCK: "is a socket, no file",
    stat.S_IFCHR: "is a device, no file",
    stat.S_IFBLK: "is a device, no file",
}
"""What a path can be that is no file."""


class Stored(NamedTuple):
    """One tensor in a file."""

    dtype: str
    shape: tuple[int, ...]


class Located(NamedTuple):
    """Where one tensor's bytes stand: from `start`, counted from the beginning of the file, to before `end`."""

    file: Path
    stored: Stored
    start: int
    end: int


def read_headers(files: Iterable[Path]) -> dict[str, Stored]:
    """The tensors of all shards by name. Raises ModelError, also for a name that stands in two of them."""
    tensors: dict[str, Stored] = {}
    lengths: dict[Stored, tuple[Stored, int]] = {}
    for file in files:
        found = _read_header(file, lengths)
        if not tensors.keys().isdisjoint(found):
            name = next(name for name in found if name in tensors)
            raise ModelError(
                f"{file}: `{shorten(name, 100)}` also stands in another shard",
                "A folder holds the shards of one checkpoint; move the others out.",
            )
        tensors.update(found)
    return tensors


def locate_tensors(file: Path) -> dict[str, Located]:
    """The tensors of one file by name, and where their bytes are. Raises ModelError."""
    return open_header(file)[0]


def open_header(file: Path) -> tuple[dict[str, Located], Mapping[str, object]]:
    """The tensors of one file, and its metadata. Raises ModelError."""
    header, first, size = _load(file)
    metadata = header.pop("__metadata__", None)
    layout = _Layout(file, size, {})
    tensors = layout.check(header)
    located = {name: Located(file, tensors[name], first + start, first + end) for start, end, name in layout.spans}
    return located, metadata if isinstance(metadata, dict) else {}


def _read_header(file: Path, lengths: dict[Stored, tuple[Stored, int]]) -> dict[str, Stored]:
    header, _, size = _load(file)
    header.pop("__metadata__", None)
    return _Layout(file, size, lengths).check(header)


def _load(file: Path) -> tuple[dict[str, object], int, int]:
    """The JSON of a header, where the weights begin after it, and how many bytes they are."""
    try:
        with open(file, "rb", buffering=0, opener=_at_once) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{file} {KINDS.get(stat.S_IFMT(status.st_mode), 'is no file')}", _READABLE)
            total = status.st_size
            if not total:
                raise ModelError(f"{file} is empty", _HELP)
            length = int.from_bytes(stream.read(8), "little")
            if total < 8 or length > total - 8:
                raise ModelError(f"{file}: its header of {length:,} bytes is longer than the file", _HELP)
            if length > MAX_HEADER_BYTES:
                raise ModelError(f"{file}: its header of {length:,} bytes is over the format's limit", _HELP)
            text = stream.read(length)
            header = json.loads(text)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}", _READABLE) from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{file}: its header is not valid JSON: {shorten(str(error), 120)}", _HELP) from None
    if not isinstance(header, dict):
        raise ModelError(f"{file}: its header is no JSON object", _HELP)
    if text.count(b'"data_offsets"') > len(header) - ("__metadata__" in header):
        raise ModelError(f"{file}: its header lists {_repeated(text)} twice", _HELP)
    return header, 8 + length, total - 8 - length


def _at_once(path: str, flags: int) -> int:
    """A named pipe that nobody writes into is opened without waiting for somebody."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _repeated(text: bytes) -> str:
    """The first name that stands twice in a header."""
    twice: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in pairs:
            if name in found:
                twice.append(name)
            found[name] = value
        return found

    json.loads(text, object_pairs_hook=note)
    return f"`{shorten(twice[0], 100)}`" if twice else "the place of a tensor"


class _Layout:
    """Where the tensors of one file lie: inside it, each as long as its shape says, none over another.

    `lengths` remembers what was found valid in any file, so that 92,000 tensors share some forty values.
    """

    def __init__(self, file: Path, size: int, lengths: dict[Stored, tuple[Stored, int]]) -> None:
        self._file = file
        self._size = size
        self._lengths = lengths
        self.spans: list[tuple[int, int, str]] = []

    def check(self, header: Mapping[str, object]) -> dict[str, Stored]:
        tensors: dict[str, Stored] = {}
        for name, entry in header.items():
            tensor, start, end = self._entry(name, entry)
            tensors[name] = tensor
            self.spans.append((start, end, name))
        self.spans.sort()
        for (_, end, first), (start, _, second) in pairwise(self.spans):
            if start < end:
                raise self._error(second, f"overlaps `{shorten(first, 100)}`")
            if start > end:
                raise self._error(second, f"begins {start - end:,} bytes after the end of `{shorten(first, 100)}`")
        self._check_ends()
        return tensors

    def _check_ends(self) -> None:
        """The format's own readers refuse a file with bytes that belong to no tensor."""
        start, end = (self.spans[0][0], self.spans[-1][1]) if self.spans else (0, 0)
        if start or end != self._size:
            stray = start or self._size - end
            raise ModelError(f"{self._file}: {stray:,} bytes of it belong to no tensor", _HELP)

    def _entry(self, name: str, entry: object) -> tuple[Stored, int, int]:
        try:
            start, end = entry["data_offsets"]  # type: ignore[index]
            read = entry["dtype"], tuple(entry["shape"])  # type: ignore[index]
            known = self._lengths.get(read)  # type: ignore[call-overload]
        except (TypeError, KeyError, ValueError):
            raise self._error(name, "has no `dtype`, `shape` and `data_offsets` that make sense") from None
        if known is None:
            known = self._keep(name, Stored(*read))
        tensor, length = known
        if type(start) is not int or type(end) is not int or start < 0 or end - start != length:
            raise self._error(name, "has another length than its shape and dtype give")
        if end > self._size:
            raise self._error(name, "ends beyond the end of the file")
        return tensor, start, end

    def _keep(self, name: str, tensor: Stored) -> tuple[Stored, int]:
        found = self._lengths[tensor] = tensor, self._length(name, tensor)
        return found

    def _length(self, name: str, tensor: Stored) -> int:
        if tensor.dtype not in _BITS:
            raise self._error(name, f"has the unknown dtype {shorten(repr(tensor.dtype))}")
        axes = tensor.shape
        if len(axes) > MAX_AXES or not all(type(size) is int and 0 <= size <= MAX_AXIS for size in axes):
            raise self._error(name, f"has the shape {shorten(str(list(axes)))}")
        bits = prod(axes) * _BITS[tensor.dtype]
        if bits % 8:
            raise self._error(name, f"has the shape {shorten(str(list(axes)))}, which {tensor.dtype} does not fill")
        return bits // 8

    def _error(self, name: str, what: str) -> ModelError:
        return ModelError(f"{self._file}: `{shorten(name, 100)}` {what}", _HELP)
