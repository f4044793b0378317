"""The partial file that a piece is written into, by several workers at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from precc_converter.conversion.findings import unwritable


class Target:
    """A file that bytes are put into at their places. Every method raises NotConverted for what the disk refuses."""

    def __init__(self, path: str, handle: int) -> None:
        self._path = path
        self._handle = handle

    def put(self, data: memoryview, at: int) -> None:
        """This writes bytes at a place: at once, while a core still has them in its cache."""
        try:
            while data:
                count = os.pwrite(self._handle, data, at)
                data, at = data[count:], at + count
        except OSError as problem:
            raise unwritable(self._path, problem) from None

    def sync(self) -> None:
        """This waits until all of the file is on the disk."""
        try:
            os.fsync(self._handle)
        except OSError as problem:
            raise unwritable(self._path, problem) from None


@contextmanager
def opened(path: str) -> Iterator[Target]:
    """This opens a file that is there. Raises NotConverted."""
    try:
        handle = os.open(path, os.O_WRONLY)
    except OSError as problem:
        raise unwritable(path, problem) from None
    try:
        yield Target(path, handle)
    finally:
        os.close(handle)
