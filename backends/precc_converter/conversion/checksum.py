"""The checksum that each shard carries in its own header, so that one that was damaged since is known.

It is a CRC-32 over the CRC-32 of every tensor, in the order in which they stand in the file: workers write tensors in
any order, and each takes that of its own from memory. It finds damage; against whoever means harm it proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from precc_converter.conversion.piece import COPY_BYTES

KEY = "precc_crc32"
"""Its name among the metadata of a shard."""

BLANK = "-" * 8
"""What stands in the place of its eight digits until all tensors are written."""

_BEFORE = f'"{KEY}":"'.encode()


def checksum(crcs: Iterable[int]) -> str:
    """The checksum of tensors by their own, as eight hexadecimal digits."""
    total = 0
    for crc in crcs:
        total = crc32(crc.to_bytes(4, "big"), total)
    return f"{total:08x}"


def with_checksum(header: bytes, digits: str) -> bytes:
    """A header with other digits in the place of its checksum; as it is where it has none."""
    before, found, after = header.partition(_BEFORE)
    return before + found + digits.encode() + after[len(digits) :] if found else header


def is_whole(path: str, header: int, sizes: Sequence[int]) -> bool:
    """Whether a shard holds what was written: its header of so many bytes has the checksum of tensors of these sizes.

    A shard that cannot be read is not whole. It is read once, in pieces.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            digits = checksum(_crcs(file.fileno(), header, sizes))
            return f'"{KEY}":"{digits}"'.encode() in os.pread(file.fileno(), header, 0)
    except OSError:
        return False


def _crcs(file: int, at: int, sizes: Iterable[int]) -> Iterator[int]:
    """The CRC-32 of each of the tensors that stand one behind the other. Raises OSError where the file ends early."""
    for size in sizes:
        crc, end = 0, at + size
        while at < end:
            data = os.pread(file, min(COPY_BYTES, end - at), at)
            if not data:
                raise OSError("the file ends early")
            crc, at = crc32(data, crc), at + len(data)
        yield crc
