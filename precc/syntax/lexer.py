"""This module cuts a text into tokens, and tokens into logical lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from precc.syntax._tables import TERMINALS
from precc.syntax.tree import Token

NEWLINE = "_NEWLINE"
UNKNOWN = "UNKNOWN"
BYTE_ORDER_MARK = "\ufeff"

_PATTERN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in (*TERMINALS, (NEWLINE, r"\r?\n"))))


def tokenize(text: str) -> list[Token]:
    """Every token of a text, comments and newlines included; a character that fits nowhere is `UNKNOWN`."""
    tokens: list[Token] = []
    offset, end = int(text.startswith(BYTE_ORDER_MARK)), len(text)
    match_at = _PATTERN.match
    while offset < end:
        match = match_at(text, offset)
        kind = match.lastgroup if match else None
        if match is None or kind is None:
            tokens.append(Token(UNKNOWN, text[offset], offset, offset + 1))
            offset += 1
            continue
        if kind != "SPACE":
            tokens.append(Token(kind, match.group(), offset, match.end()))
        offset = match.end()
    return tokens


class LogicalLine:
    """The tokens of one statement.

    `unmatched` is its first parenthesis without a partner, `too_deep` the first one nested beyond the limit.
    """

    __slots__ = ("tokens", "too_deep", "unmatched")

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.unmatched: Token | None = None
        self.too_deep: Token | None = None


def logical_lines(tokens: list[Token], max_depth: int) -> Iterator[LogicalLine]:
    """Statements as runs of tokens: a newline ends one unless a pair of parentheses stands around it.

    A parenthesis without a partner holds no line open, so that a forgotten one costs one line.
    """
    partners = _matched_parentheses(tokens)
    line = LogicalLine()
    depth = 0
    for index, token in enumerate(tokens):
        if token.type == NEWLINE:
            if depth == 0:
                yield line
                line = LogicalLine()
            continue
        line.tokens.append(token)
        if token.type not in ("LPAR", "RPAR"):
            continue
        if index not in partners:
            line.unmatched = line.unmatched or token
            continue
        depth += 1 if token.type == "LPAR" else -1
        if depth > max_depth:
            line.too_deep = line.too_deep or token
    yield line


def _matched_parentheses(tokens: list[Token]) -> set[int]:
    """The indices of the parentheses that have a partner."""
    matched: set[int] = set()
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.type == "LPAR":
            opened.append(index)
        elif token.type == "RPAR" and opened:
            matched.update((opened.pop(), index))
    return matched
