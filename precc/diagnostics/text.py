"""Findings for people: each with a picture of the lines that it is about.

error[P101]: no known model has `kv_bproj`
 --> policy.prec:3:1
  |
3 | kv_bproj: bf16
  | ^^^^^^^^
  = help: did you mean `kv_b_proj`?
  = model: deepseek-v3
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from precc.diagnostics import Diagnostic, Severity
from precc.diagnostics.picture import Mark, picture
from precc.diagnostics.places import printable

WIDTH = 110
"""Cells of a source line that are shown; a longer one is clipped around its carets."""

_COLORS = {Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.INFO: "1;36"}
_PLURALS = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "infos"}


def render(findings: Iterable[Diagnostic], color: bool = False, width: int = WIDTH) -> str:
    """This renders findings, a blank line behind each; nothing for none."""
    return "".join(f"{_block(finding, color, width)}\n\n" for finding in findings)


def summary(findings: Sequence[Diagnostic]) -> str:
    """The last line: `2 errors, 1 warning in 1 file`. Files are those that findings stand in."""
    counts = [(severity, sum(finding.severity is severity for finding in findings)) for severity in Severity]
    words = [f"{count} {_PLURALS[s] if count != 1 else s.value}" for s, count in counts if count]
    if not words:
        return "no findings"
    files = len({finding.span.source.path for finding in findings if finding.span is not None})
    return ", ".join(words) + (f" in {files} file{'' if files == 1 else 's'}" if files else "")


def _block(finding: Diagnostic, color: bool, width: int) -> str:
    tint = _COLORS[finding.severity]

    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if color else text

    head = paint(f"{finding.severity.value}[{finding.code}]", tint)
    lines = [f"{head}: {paint(printable(finding.message), '1')}"]
    gutter = 2
    if finding.span is not None:
        marks = [
            Mark(finding.span, "", "^", tint),
            *(Mark(x.span, x.message, "-", "1;34") for x in finding.labels),
        ]
        gutter, drawn = picture(marks, width, paint)
        lines += drawn
    for word, text in (("help", finding.help), ("model", finding.model)):
        if text:
            lines += _note(word, text, gutter, paint("=", "1;34"))
    return "\n".join(lines)


def _note(word: str, text: str, gutter: int, sign: str) -> list[str]:
    first, *more = [printable(line) for line in text.splitlines()] or [""]
    indent = " " * (gutter + len(word) + 5)
    return [f"{' ' * gutter} {sign} {word}: {first}", *(f"{indent}{line}" for line in more)]
