"""Reading from places in files: each is opened once, and nothing is mapped, so memory is what the caller brings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self


class Files:
    """Files that are read in pieces."""

    def __init__(self) -> None:
        self._handles: dict[Path, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles.values():
            os.close(handle)

    def fill(self, file: Path, start: int, into: memoryview) -> int:
        """This fills a buffer from a place in a file, and is how many bytes came: fewer where the file ends.

        Raises OSError.
        """
        if file not in self._handles:
            self._handles[file] = os.open(file, os.O_RDONLY)
        filled = 0
        while filled < len(into):
            count = os.preadv(self._handles[file], [into[filled:]], start + filled)
            if not count:
                break
            filled += count
        return filled
