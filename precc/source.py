"""Source text and places in it; imports nothing of precc."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One policy file as read: its display path and its text (a byte-order mark removed)."""

    path: str
    text: str = field(repr=False)
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0]
        starts.extend(i + 1 for i, char in enumerate(self.text) if char == "\n")
        object.__setattr__(self, "_starts", tuple(starts))

    def position(self, offset: int) -> tuple[int, int]:
        """The line and column of a character offset, both counted from one."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line (counted from one), without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    @property
    def line_count(self) -> int:
        return len(self._starts)

    def span(self, start: int, end: int) -> Span:
        return Span(self, start, end)


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets in one source file."""

    source: SourceFile
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of another."""
        return Span(self.source, self.start, other.end)
