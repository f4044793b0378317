"""Which numbers a list of patterns can tell apart.

A module's path holds the local number of a layer or expert. What first matches is the same for all numbers unless
some pattern can spend a literal on a digit of the number; only then are the numbers tried one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

_WILD = frozenset("?[")
_DIGITS = frozenset("0123456789")


def tells_apart(pattern: str, head: str) -> bool:
    """Whether a pattern can match `head` + N + a tail for some numbers N and not for others.

    Exact for literals and `*`: only a literal digit that comes next after `head` is spent on the number, which is
    otherwise swallowed whole by a `*` or fails whatever it is. A pattern with `?` or `[` is taken to tell them apart.
    """
    if not _WILD.isdisjoint(pattern):
        return True
    return any(_matches(head, pattern[:at]) for at, char in enumerate(pattern) if char in _DIGITS)


def _matches(text: str, pattern: str) -> bool:
    """Whether a pattern of literals and `*` matches the whole of a text."""
    first, *others = pattern.split("*")
    if not others:
        return text == first
    *inner, last = others
    at = len(first)
    for piece in inner:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return text.startswith(first) and text.endswith(last) and at + len(last) <= len(text)


def representatives(patterns: Sequence[str], head: str, numbers: range) -> range:
    """Numbers that stand for all of them: one, or each where some pattern can tell them apart."""
    if len(numbers) > 1 and any(tells_apart(pattern, head) for pattern in patterns):
        return numbers
    return numbers[:1]
