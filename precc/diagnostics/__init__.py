"""Findings as values. Text appears only in the renderers beside this file, one a module."""

from __future__ import annotations

from enum import Enum

from precc.records import record, replace
from precc.source import Span

__all__ = ["Diagnostic", "Edit", "Fix", "Label", "Severity"]


class Severity(Enum):
    """How a finding counts: errors stop a compile, warnings fail a lint, information does neither."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@record
class Label:
    """A second place that explains the first."""

    span: Span
    message: str


@record
class Edit:
    """Replace the text of a span."""

    span: Span
    replacement: str


@record
class Fix:
    """Edits that resolve a finding; `safe` when they cannot change what the policy decides."""

    edits: tuple[Edit, ...]
    safe: bool


@record
class Diagnostic:
    """One finding: what is wrong, where, and what to write instead."""

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    labels: tuple[Label, ...] = ()
    help: str | None = None
    fix: Fix | None = None
    model: str | None = None

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR

    def at(self, span: Span) -> Diagnostic:
        """The same finding, placed."""
        return replace(self, span=span)

    def on_model(self, name: str) -> Diagnostic:
        """The same finding, tied to the model it was found on."""
        return replace(self, model=name)


def error(
    code: str,
    message: str,
    span: Span | None = None,
    *,
    help: str | None = None,
    labels: tuple[Label, ...] = (),
    fix: Fix | None = None,
) -> Diagnostic:
    """This is a finding of severity error."""
    return Diagnostic(code, Severity.ERROR, message, span, labels, help, fix)


def warning(
    code: str,
    message: str,
    span: Span | None = None,
    *,
    help: str | None = None,
    labels: tuple[Label, ...] = (),
    fix: Fix | None = None,
) -> Diagnostic:
    """This is a finding of severity warning."""
    return Diagnostic(code, Severity.WARNING, message, span, labels, help, fix)


def info(
    code: str,
    message: str,
    span: Span | None = None,
    *,
    help: str | None = None,
    labels: tuple[Label, ...] = (),
) -> Diagnostic:
    """This is a finding of severity info."""
    return Diagnostic(code, Severity.INFO, message, span, labels, help)
