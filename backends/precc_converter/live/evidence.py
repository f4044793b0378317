"""The evidence log: one line of JSON for each session that exported everything, and no line for any other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ENGINES = ("precc", "torch", "megatron-core", "transformer-engine", "sglang", "flashinfer-python", "transformers")
"""The packages whose versions a line states, those of them that are installed."""


def engine_versions() -> dict[str, str]:
    """The installed versions of what computes, trains and serves."""
    return dict(_versions())


def _versions() -> Iterator[tuple[str, str]]:
    for name in ENGINES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


class EvidenceLog:
    """A file of lines; sessions of several processes may append to the same one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """This finds out before anything is exported whether a line can be appended. Raises OSError."""
        os.close(self._open())

    def append(self, facts: dict[str, Any]) -> None:
        """This appends one line, on the disk when it returns. Raises OSError; then the line is not there."""
        file = self._open()
        try:
            before = os.fstat(file).st_size
            line = json.dumps(facts).encode() + b"\n"
            if before and os.pread(file, 1, before - 1) != b"\n":
                line = b"\n" + line
            if os.write(file, line) != len(line):
                os.ftruncate(file, before)
                raise OSError(f"{self._path}: no room for a line of {len(line)} bytes")
            os.fsync(file)
        finally:
            os.close(file)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
