"""Findings as workflow commands, which GitHub Actions shows at the line that they are about.

The characters that the runner decodes are those of its toolkit: `%`, carriage return and newline in a message, and
`:` and `,` in a property as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from precc.diagnostics import Diagnostic, Severity
from precc.diagnostics.places import place

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_IN_MESSAGES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def render(findings: Iterable[Diagnostic]) -> str:
    """This renders one command a finding."""
    return "".join(f"{_command(finding)}\n" for finding in findings)


def _command(finding: Diagnostic) -> str:
    properties = ",".join(f"{key}={value.translate(_IN_PROPERTIES)}" for key, value in _properties(finding))
    return f"::{_COMMANDS[finding.severity]} {properties}::{_message(finding).translate(_IN_MESSAGES)}"


def _properties(finding: Diagnostic) -> list[tuple[str, str]]:
    """Columns are understood within one line only."""
    properties = [("title", f"precc {finding.code}")]
    if finding.span is not None:
        spot = place(finding.span)
        properties += [
            ("file", finding.span.source.path),
            ("line", str(spot.line)),
            ("endLine", str(spot.end_line)),
        ]
        if spot.line == spot.end_line:
            properties += [("col", str(spot.column)), ("endColumn", str(spot.end_column))]
    return properties


def _message(finding: Diagnostic) -> str:
    where = ""
    if finding.span is not None:
        spot = place(finding.span)
        where = f"{finding.span.source.path}:{spot.line}:{spot.column}: "
    model = f" [{finding.model}]" if finding.model else ""
    help = f"\nhelp: {finding.help}" if finding.help else ""
    return f"{where}{finding.code} {finding.message}{model}{help}"
