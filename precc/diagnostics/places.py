"""Where a finding stands, in the numbers that every renderer writes.

Lines and columns count from one, columns in characters; the end is exclusive: the column behind the last character.
"""

from __future__ import annotations

from typing import NamedTuple

from precc.source import Span

PAGES = "docs/diagnostics"
"""Where the pages of the codes lie in the repository: one Markdown file a code."""


class Place(NamedTuple):
    """A span as numbers."""

    line: int
    column: int
    end_line: int
    end_column: int


def place(span: Span) -> Place:
    """The numbers of a span. A span that ends with its line does not reach into the next one."""
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    if end_column == 1 and end_line > line:
        end_line -= 1
        end_column = len(span.source.line(end_line)) + 1
    return Place(line, column, end_line, max(end_column, column) if end_line == line else end_column)


def page(code: str) -> str:
    """The address of a code's page, relative to the root of the repository."""
    return f"{PAGES}/{code}.md"


def printable(text: str) -> str:
    """Text that cannot steer a terminal or break a line: what is not printable is written as an escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return " " if char in "\n\r\t" else char.encode("unicode_escape").decode("ascii")
