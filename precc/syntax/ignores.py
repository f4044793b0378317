"""This module reads `# precc: ignore[P204, P301] reason` comments, in any case and with any spaces.

One comment may hold several. A comment that all but is one is reported: it would silence nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from precc.diagnostics import Edit, Fix
from precc.syntax import ast
from precc.syntax.findings import Findings
from precc.syntax.tree import Token

_START = r"(?<!\S)#+\s*precc"
_CODE = r"P[0-9]{3}\b"
_DIRECTIVE = rf"(?i:{_START}(?:\s*:\s*ignore\b|[\s:]+(?:\w+\[|ignore\s+)(?={_CODE})))"
_SOUND = rf"(?i:{_START}\s*:\s*ignore\s*\[\s*({_CODE}(?:\s*,\s*{_CODE})*)\s*\])"
_MISSPELT = rf"(?i:[\s:=(\[]*({_CODE}(?:[\s,;]+{_CODE})*)\s*(?:[\])]|(?=\s)|$))"


def lower_ignores(comment: Token, findings: Findings) -> Iterator[ast.Ignore]:
    """What a comment silences; nothing for any other comment, and for what was reported."""
    if "precc" not in comment.text.lower():
        return
    directives = list(re.finditer(_DIRECTIVE, comment.text))
    starts = [directive.start() for directive in directives]
    for directive, (start, end) in zip(directives, pairwise([*starts, len(comment.text)]), strict=True):
        sound = re.match(_SOUND, comment.text[start:])
        if sound is None:
            _report(comment, directive, findings)
            continue
        span = findings.source.span(comment.start + start, comment.start + end)
        yield ast.Ignore(_codes(sound[1]), span.line, span=span)


def _codes(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(re.findall(_CODE, text.upper())))


def _report(comment: Token, directive: re.Match[str], findings: Findings) -> None:
    """Report an ignore without codes, or one whose codes do not stand as they should."""
    misspelt = re.match(_MISSPELT, comment.text[directive.end() :])
    if misspelt is None:
        message = "an ignore comment names the codes that it silences"
        findings.report("P001", message, comment, help="write `# precc: ignore[P204] and why`")
        return
    right = f"# precc: ignore[{', '.join(_codes(misspelt[1]))}]"
    span = findings.source.span(comment.start + directive.start(), comment.start + directive.end() + misspelt.end())
    message = "this ignore comment is misspelt and would silence nothing"
    findings.report("P001", message, span, help=f"write `{right}`", fix=Fix((Edit(span, right),), True))
