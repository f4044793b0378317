"""What ends a command before it has a result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from precc.diagnostics import Diagnostic


class UsageError(Exception):
    """The command cannot run as it was given: one line that says what is wrong and what would work. Status 2."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(f"{message}; {help}" if help else message)


class Refused(Exception):
    """The policy has errors, so that there is nothing to show but these. Status 1."""

    def __init__(self, findings: Iterable[Diagnostic]) -> None:
        self.findings = tuple(findings)
        super().__init__(f"{len(self.findings)} findings")
