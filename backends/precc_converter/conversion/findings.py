"""What ends a conversion, as an exception that carries its findings; one word a code."""

from __future__ import annotations

import os
from collections.abc import Iterable
from errno import EACCES, EDQUOT, EEXIST, EFBIG, ENAMETOOLONG, ENOSPC, ENOTDIR, EPERM, EROFS

from precc.diagnostics import Diagnostic, error
from precc.records import replace

UNLIKE = "P601"
NOT_FINITE = "P602"
MISSING_OR_EXTRA = "P603"
UNREADABLE = "P604"
DESTINATION = "P605"
NO_ROOM = "P606"
LOST_WORKER = "P607"
NO_CONFIGURATION = "P608"
INDEX = "P609"
CONFIGURATION = "P610"


class NotConverted(Exception):
    """A conversion that ended without a checkpoint: `findings` say why, and what to do."""

    def __init__(self, *findings: Diagnostic) -> None:
        super().__init__("; ".join(f"{finding.code} {finding.message}" for finding in findings))
        self.findings = findings

    def __reduce__(self) -> tuple[type[NotConverted], tuple[Diagnostic, ...]]:
        return NotConverted, self.findings


class WrongValues(NotConverted):
    """Values of one tensor that cannot be converted; `in_file` adds the file that holds them, where that is known."""

    def __init__(self, code: str, name: str, what: str, help: str) -> None:
        super().__init__(error(code, f"`{name}` {what}", help=help))
        self.name = name

    def in_file(self, file: str | os.PathLike[str]) -> NotConverted:
        """The same with the file said first."""
        (finding,) = self.findings
        return NotConverted(replace(finding, message=f"{file}: {finding.message}"))


def stop(code: str, message: str, help: str | None = None) -> NotConverted:
    """This is the exception for one finding."""
    return NotConverted(error(code, message, help=help))


_ROOM = (NO_ROOM, "make room and run the same command again: what is finished is kept")
_FREE = (DESTINATION, "name a new or an empty folder")
_OURS = (DESTINATION, "name a folder that this user may write")
_BROKEN = (DESTINATION, "see to the disk and run the same command again: what is finished is kept")
_REFUSALS: dict[int, tuple[str, str]] = {
    ENOSPC: _ROOM,
    EDQUOT: _ROOM,
    EFBIG: (NO_ROOM, "its file system holds no file of this size: give a smaller --max-shard-size"),
    EEXIST: _FREE,
    ENOTDIR: _FREE,
    EACCES: _OURS,
    EPERM: _OURS,
    EROFS: _OURS,
    ENAMETOOLONG: (DESTINATION, "name a folder with a shorter path"),
}
"""What the system refuses a write with → the finding that it is, and what to do."""


def unwritable(path: str | os.PathLike[str], problem: OSError) -> NotConverted:
    """What is said when the destination takes nothing, or nothing more."""
    code, help = _REFUSALS.get(problem.errno or 0, _BROKEN)
    return stop(code, f"{path} cannot be written: {problem.strerror or problem}", help)


def counted(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are."""
    first, *others = names
    return f"`{first}`" + (f" and {len(others):,} more" if others else "")
