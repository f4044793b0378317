"""`lint --fix`: safe fixes, as far as they do not touch each other."""

from __future__ import annotations

from collections.abc import Iterable

from precc.diagnostics import Diagnostic, Edit, Fix
from precc.source import SourceFile


def apply_fixes(source: SourceFile, findings: Iterable[Diagnostic]) -> tuple[str, int]:
    """The text with every safe fix of this file, and how many there were. One that overlaps waits for a next round."""
    fixes = dict.fromkeys(
        finding.fix for finding in findings if finding.fix is not None and _applies(finding.fix, source)
    )
    taken: list[Edit] = []
    count = 0
    for fix in fixes:
        if not any(_overlap(edit, other) for edit in fix.edits for other in taken):
            taken.extend(fix.edits)
            count += 1
    text = source.text
    for edit in sorted(taken, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.replacement + text[edit.span.end :]
    return text, count


def _applies(fix: Fix, source: SourceFile) -> bool:
    return fix.safe and all(edit.span.source == source for edit in fix.edits)


def _overlap(one: Edit, other: Edit) -> bool:
    if one.span.start == other.span.start:
        return True
    return one.span.start < other.span.end and other.span.start < one.span.end
