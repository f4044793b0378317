"""Which complaints the case files answer, and which are listed with the reason why they cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from field.cases import INDEX, all_cases

OTHER_TOOLS = (
    *(1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 18, 19, 20, 21, 22, 23, 25, 28, 29, 30, 31, 33, 34, 35, 36),
    *(37, 38, 40, 41, 42, 44, 46, 47, 49, 51, 52, 53, 54),
)
"""The numbers of 1–54 that are in use: the others were fixes of the same complaint."""

MILES = tuple(f"D{number}" for number in range(1, 20))

COMPLAINTS: tuple[str, ...] = (
    *MILES,
    *"ABCDEF",
    *(f"H{number}" for number in range(1, 9)),
    *map(str, OTHER_TOOLS),
    *(f"T{number}" for number in range(1, 16)),
    *(f"S{number}" for number in range(1, 10)),
)


def answered() -> set[str]:
    """The numbers of all cases."""
    return {number for case in all_cases() for number in case.numbers}


def excused() -> dict[str, str]:
    """The numbers of the last table of the folder's README, with the reason."""
    return dict(_rows(INDEX.read_text(encoding="utf-8").split("## What no case can say")[1]))


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if found := re.fullmatch(r"\| (?P<number>[A-Z]?\d*) \| (?P<complaint>.+) \| (?P<why>.+) \|", line):
            yield found["number"], found["why"]
