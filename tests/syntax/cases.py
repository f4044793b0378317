"""The case files: policies in Markdown with the findings they must yield, or with their canonical form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from precc.diagnostics import Diagnostic
from precc.source import SourceFile
from precc.syntax import parse

FOLDER = Path(__file__).parents[1] / "cases" / "syntax"
FORMAT_FOLDER = FOLDER / "format"

_CASE = re.compile(
    r"^## (?P<title>[^\n]+)\n.*?^```prec\n(?P<policy>.*?)^```\n.*?^```findings\n(?P<findings>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Case(NamedTuple):
    """A policy and what must come of it."""

    title: str
    policy: str
    expected: str


def finding_cases() -> Iterator[Case]:
    """Every `## title` of the Markdown files."""
    for path in sorted(FOLDER.glob("*.md")):
        for match in _CASE.finditer(path.read_text("utf-8")):
            yield Case(f"{path.stem}: {match['title']}", match["policy"], match["findings"])


def format_cases() -> Iterator[Case]:
    """Every `.prec` file: what stands above the line `# output`, and what stands below."""
    for path in sorted(FORMAT_FOLDER.glob("*.prec")):
        policy, _, expected = path.read_text("utf-8").partition("# output\n")
        yield Case(path.stem, policy, expected or policy)


def findings_text(policy: str) -> str:
    """The findings as the case files state them: place, code and message, then help, then the fixed line."""
    source = SourceFile("case.prec", policy)
    return "".join(map(_finding_text, parse(source)[1]))


def _finding_text(finding: Diagnostic) -> str:
    assert finding.span
    text = f"{finding.span.line}:{finding.span.column} {finding.code} {finding.message}\n"
    if finding.help:
        text += f"  help: {finding.help}\n"
    if finding.fix:
        text += f"  fix: {fixed(finding).splitlines()[finding.span.line - 1]}\n"
    return text


def fixed(finding: Diagnostic) -> str:
    """The text with the edits of one finding's fix."""
    assert finding.fix
    text = finding.fix.edits[0].span.source.text
    for edit in sorted(finding.fix.edits, key=lambda edit: -edit.span.start):
        text = text[: edit.span.start] + edit.replacement + text[edit.span.end :]
    return text
