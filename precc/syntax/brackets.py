"""This module lowers what stands in the brackets of `layers[…]`: numbers, or a half-open slice."""

from __future__ import annotations

import re
from fractions import Fraction

from precc.syntax import ast
from precc.syntax.findings import Findings
from precc.syntax.tree import Token

_INDEX = r"-?[0-9]{1,6}"
_BOUND = r"(-?)([0-9]{1,6}(?:\.[0-9]{1,9})?)(%?)"
FORMS = "write `layers[0]`, `layers[3,7]`, `layers[4:12]`, `layers[-8:]` or `layers[-15%:]`"


class _Wrong(Exception):
    """What is wrong with the brackets."""


def lower_brackets(token: Token, findings: Findings) -> ast.Indices | ast.Slice | None:
    """The layers that brackets choose, or None when they were reported."""
    try:
        return _read(token.text[1:-1].strip())
    except _Wrong as wrong:
        findings.report("P005", str(wrong), token, help=FORMS)
        return None


def _read(text: str) -> ast.Indices | ast.Slice:
    if not text:
        raise _Wrong("the brackets are empty")
    if ":" not in text:
        return ast.Indices(tuple(_index(part.strip()) for part in text.split(",")))
    if "," in text:
        raise _Wrong("brackets hold either numbers or one slice")
    bounds = [_bound(part.strip()) for part in text.split(":", 2)[:2]]
    if text.count(":") > 1:
        raise _Wrong("a slice of layers has no step")
    return ast.Slice(*bounds)


def _index(text: str) -> int:
    if re.fullmatch(_INDEX, text):
        return int(text)
    if text.endswith("%"):
        raise _Wrong(f"a share of the layers is a slice: `[:{text}]` or `[-{text.lstrip('-')}:]`")
    raise _Wrong(f"`{text}` is no layer number" if text else "a layer number is missing at a comma")


def _bound(text: str) -> ast.Bound | None:
    if not text:
        return None
    match = re.fullmatch(_BOUND, text)
    if match is None:
        raise _Wrong(f"`{text}` is neither a layer number nor a percentage")
    sign, digits, percent = match.groups()
    value = Fraction(digits)
    if percent and value > 100:
        raise _Wrong(f"`{text}` is more than all layers")
    if not percent and "." in digits:
        raise _Wrong(f"`{text}` is no whole number; a share ends in `%`")
    from_end = bool(sign) and (bool(percent) or value != 0)
    return ast.Bound(value, bool(percent), from_end)
