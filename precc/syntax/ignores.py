"""This module reads `# precc: ignore[P204, P301] reason` comments."""

from __future__ import annotations

import re

from precc.syntax import ast
from precc.syntax.findings import Findings
from precc.syntax.tree import Token

_DIRECTIVE = r"#\s*precc:\s*ignore\b(.*)"
_CODES = r"\s*\[\s*(P[0-9]{3}(?:\s*,\s*P[0-9]{3})*)\s*\]"


def lower_ignore(comment: Token, findings: Findings) -> ast.Ignore | None:
    """The codes that a comment silences; None for any other comment, and for one that was reported."""
    if "precc" not in comment.text:
        return None
    directive = re.match(_DIRECTIVE, comment.text)
    if directive is None:
        return None
    codes = re.match(_CODES, directive[1])
    if codes is None:
        message = "an ignore comment names the codes that it silences"
        findings.report("P001", message, comment, help="write `# precc: ignore[P204] and why`")
        return None
    span = findings.span(comment)
    return ast.Ignore(tuple(code.strip() for code in codes[1].split(",")), span.line, span=span)
