"""What ends a conversion, as an exception that carries its findings; one word a code."""

from __future__ import annotations

from collections.abc import Sequence

from precc.diagnostics import Diagnostic, error

UNLIKE = "P601"
NOT_FINITE = "P602"
MISSING_OR_EXTRA = "P603"
UNREADABLE = "P604"
DESTINATION = "P605"
NO_ROOM = "P606"
LOST_WORKER = "P607"
NO_CONFIGURATION = "P608"


class NotConverted(Exception):
    """A conversion that ended without a checkpoint: `findings` say why, and what to do."""

    def __init__(self, *findings: Diagnostic) -> None:
        super().__init__("; ".join(f"{finding.code} {finding.message}" for finding in findings))
        self.findings = findings

    def __reduce__(self) -> tuple[type[NotConverted], tuple[Diagnostic, ...]]:
        return NotConverted, self.findings


def stop(code: str, message: str, help: str | None = None) -> NotConverted:
    """This is the exception for one finding."""
    return NotConverted(error(code, message, help=help))


def counted(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    first, *others = names
    return f"`{first}`" + (f" and {len(others):,} more" if others else "")
