"""This module lowers one component of a path: stars and braces, expanded into plain alternatives."""

from __future__ import annotations

import re
from itertools import product

from precc.syntax import ast
from precc.syntax.findings import Findings
from precc.syntax.tree import Token

MAX_ALTERNATIVES = 256
"""Braces multiply; more names than this are a mistake or an attack."""

_PIECE = r"[^{}]+|\{[^{}]*\}"
_PLAIN = r"[A-Za-z0-9_*]+"


def lower_name(token: Token, findings: Findings) -> ast.Name | ast.AnyDepth | None:
    """A component without brackets, or None when it was reported."""
    if token.text == "**":
        return ast.AnyDepth(span=findings.span(token))
    wrong = _wrong_braces(token.text)
    pieces = [] if wrong else [_alternatives(piece) for piece in re.findall(_PIECE, token.text)]
    if not wrong:
        wrong = _wrong_alternatives(pieces)
    if wrong:
        findings.report("P019", wrong[0], token, help=wrong[1])
        return None
    names = dict.fromkeys("".join(choice) for choice in product(*pieces))
    if any("**" in name for name in names):
        message = f"`**` stands alone between dots, not inside `{token.text}`"
        findings.report("P019", message, token, help="write `*` for any run of characters inside one component")
        return None
    return ast.Name(tuple(names), span=findings.span(token))


def _alternatives(piece: str) -> list[str]:
    if not piece.startswith("{"):
        return [piece]
    return [part.strip(" \t") for part in piece[1:-1].split(",")]


def _wrong_braces(text: str) -> tuple[str, str] | None:
    """What is wrong with how braces open and close, and what to write instead."""
    depth = 0
    for char in text:
        depth += (char == "{") - (char == "}")
        if depth > 1:
            return "braces cannot stand inside braces", "write every alternative in one pair: `{a,b,c}`"
        if depth < 0:
            return "this `}` closes nothing", "remove it, or open the braces with `{`"
    return ("this `{` is not closed", "close it: `{q,k,v}_proj`") if depth else None


def _wrong_alternatives(pieces: list[list[str]]) -> tuple[str, str] | None:
    count = 1
    for alternatives in pieces:
        count *= len(alternatives)
        if count > MAX_ALTERNATIVES:
            return "these braces stand for too many names", f"at most {MAX_ALTERNATIVES}; use `*` instead"
        for name in alternatives:
            if not name:
                return "braces hold an empty alternative", "remove the spare comma, or write two selectors"
            if "." in name:
                return "braces hold no dots", "write whole paths as two selectors: `mlp.gate, attn.q`"
            if not re.fullmatch(_PLAIN, name):
                return f"`{name}` is no plain alternative", "use letters, digits, `_` and `*`"
    return None
