"""This module sets the spaces between tokens, and inside those that hold some."""

from __future__ import annotations

import re

from precc.syntax.tree import Token

_TIGHT_BEFORE = frozenset(("COMMA", "COLON", "RPAR", "QUESTION", "DOT", "BRACKETS", "PERCENT"))
_TIGHT_AFTER = frozenset(("LPAR", "DOT"))
_SIZE = re.compile(r"([0-9]+)([A-Za-z]+)")


def joined(tokens: list[Token], statement: list[Token] | None = None) -> str:
    """Tokens as text; `statement` holds all tokens of the statement when these are one line of it."""
    whole = statement or tokens
    is_setting = whole[0].type in ("TRAIN", "ROLLOUT")
    measure = whole[1] if whole[0].type == "EXPECT" and len(whole) > 1 else None
    parts: list[str] = []
    before: Token | None = None
    is_quantity = False
    for token in tokens:
        if before and not _is_tight(before, token, is_setting, measure):
            parts.append(" ")
        parts.append(_text(token, is_quantity))
        is_quantity = is_quantity or token.type == "COMPARISON"
        before = token
    return "".join(parts)


def _is_tight(before: Token, token: Token, is_setting: bool, measure: Token | None) -> bool:
    """Whether no space stands between two tokens."""
    if token.type in _TIGHT_BEFORE or before.type in _TIGHT_AFTER:
        return True
    if token.type == "LPAR" and before is measure and before.type == "WORD":
        return True
    return is_setting and "EQUAL" in (token.type, before.type)


def _text(token: Token, is_quantity: bool) -> str:
    """The text of a token, without spaces in brackets and braces and with one before a unit."""
    text = "".join(token.text.split()) if token.type in ("BRACKETS", "WORD") else token.text
    size = _SIZE.fullmatch(text) if is_quantity else None
    return f"{size[1]} {size[2]}" if size else text
