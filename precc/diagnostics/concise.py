"""One line a finding, for editors and for `grep`: `file:line:column: CODE severity message [model]`."""

from __future__ import annotations

from collections.abc import Iterable

from precc.diagnostics import Diagnostic
from precc.diagnostics.places import place, printable


def render(findings: Iterable[Diagnostic]) -> str:
    """This renders findings as lines, each ending in a newline; nothing for none."""
    return "".join(f"{_line(finding)}\n" for finding in findings)


def _line(finding: Diagnostic) -> str:
    where = ""
    if finding.span is not None:
        spot = place(finding.span)
        where = f"{printable(finding.span.source.path)}:{spot.line}:{spot.column}: "
    model = f" [{printable(finding.model)}]" if finding.model else ""
    return f"{where}{finding.code} {finding.severity.value} {printable(finding.message)}{model}"
