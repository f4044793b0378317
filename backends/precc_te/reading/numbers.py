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

    Exact for literals and `*`: after `head`, every way to match stands at some place of the pattern. If no literal
    digit can come next at any of them, a number is swallowed whole by a `*` or fails whatever it is. A pattern with
    `?` or `[` is taken to tell numbers apart.
    """
    if not _WILD.isdisjoint(pattern):
        return True
    if _DIGITS.isdisjoint(pattern):
        return False
    places = _closed(pattern, {0})
    for char in head:
        places = _closed(pattern, {after for place in places for after in _step(pattern, place, char)})
    return any(place < len(pattern) and pattern[place] in _DIGITS for place in places)


def _step(pattern: str, place: int, char: str) -> tuple[int, ...]:
    if place == len(pattern):
        return ()
    if pattern[place] == "*":
        return (place,)
    return (place + 1,) if pattern[place] == char else ()


def _closed(pattern: str, places: set[int]) -> set[int]:
    """The places, and those behind a `*` that takes nothing."""
    found = set(places)
    for place in places:
        while place < len(pattern) and pattern[place] == "*":
            place += 1
            found.add(place)
    return found


def representatives(patterns: Sequence[str], head: str, numbers: range) -> range:
    """Numbers that stand for all of them: one, or each where some pattern can tell them apart."""
    if len(numbers) > 1 and any(tells_apart(pattern, head) for pattern in patterns):
        return numbers
    return numbers[:1]
