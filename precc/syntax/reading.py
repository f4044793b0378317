"""This module reads a policy from disk; a file may be missing, binary or far too large."""

from __future__ import annotations

import os
import stat

from precc.diagnostics import Diagnostic, error
from precc.source import SourceFile

MAX_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 16

_NO_FILES = {
    stat.S_IFIFO: "it is a named pipe",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}
_OPENED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""What the shell has opened for this process: `precc lint /dev/stdin`, `precc lint <(make_policy)`."""


def read_source(path: str | os.PathLike[str]) -> SourceFile | Diagnostic:
    """The text of a policy file, without its byte-order mark, or why there is none."""
    shown = os.fspath(path)
    try:
        kind = stat.S_IFMT(os.stat(shown).st_mode)
        if kind in _NO_FILES and not shown.startswith(_OPENED):
            return _unreadable(shown, _NO_FILES[kind], "give a regular file")
        with open(shown, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as failure:
        return _unreadable(shown, (failure.strerror or "it cannot be read").lower(), "check the path")
    except ValueError:
        return _unreadable(shown, "its path holds a NUL character", "check the path")
    return decode_source(shown, data)


def decode_source(path: str, data: bytes) -> SourceFile | Diagnostic:
    """The same for bytes that are already there."""
    wrong = _wrong(data)
    if wrong:
        return _unreadable(path, *wrong)
    try:
        return SourceFile(path, data.decode("utf-8-sig"))
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        return _unreadable(path, f"line {line} is not UTF-8", "save the file as UTF-8")


def _wrong(data: bytes) -> tuple[str, str] | None:
    """What forbids to read these bytes as a policy, and what to do about it."""
    if len(data) > MAX_BYTES:
        return "it is larger than 1 MiB", "a policy is a short text; is this the right file?"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16", "save the file as UTF-8"
    if b"\0" in data:
        return "it is binary", "a policy is a text file; is this the right file?"
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > MAX_LINE_BYTES:
            return (
                f"line {number} is longer than 64 KiB",
                "break the line inside parentheses, or use a wildcard",
            )
    return None


def _unreadable(path: str, why: str, help: str) -> Diagnostic:
    return error("P012", f"cannot read this file: {why}", SourceFile(path, "").span(0, 0), help=help)
