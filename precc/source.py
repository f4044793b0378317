"""Source text and places in it; imports nothing of precc."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from precc.records import field, record


@record
class SourceFile:
    """One policy file as read: the path that findings show, and its text (a byte-order mark removed).

    `recorded` is the path that a contract names it by, the same wherever the project lies; empty for the same path.
    """

    path: str
    text: str = field(repr=False)
    recorded: str = field(default="", compare=False, repr=False)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return (0, *(i + 1 for i, char in enumerate(self.text) if char == "\n"))

    def position(self, offset: int) -> tuple[int, int]:
        """The line and column of a character offset, both counted from one."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line (counted from one), without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def span(self, start: int, end: int) -> Span:
        return Span(self, start, end)


@record
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
