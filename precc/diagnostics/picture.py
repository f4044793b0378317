"""Source lines with carets: the picture under a finding in text.

A cell is one column of a terminal: a tab reaches to the next multiple of four, an East Asian wide character takes
two cells, a combining one none, and a control character is shown as its symbol so that a policy cannot steer the
terminal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from precc.diagnostics.places import Place, place, printable
from precc.source import SourceFile, Span

Paint: TypeAlias = Callable[[str, str], str]
"""Text and the number of a colour → text for the terminal."""

TAB = 4
SHOWN_LINES = 6
"""A span over more lines shows the first ones and the last."""


class Mark(NamedTuple):
    """A span to underline with `sign`, in a colour, and what to write behind the underline."""

    span: Span
    message: str
    sign: str
    color: str


class Window(NamedTuple):
    """The characters of a line that are shown: all of them, or those around a mark."""

    first: int
    last: int


def picture(marks: list[Mark], width: int, paint: Paint) -> tuple[int, list[str]]:
    """The lines of a picture, and the width of its line numbers. The first mark's file comes first."""
    gutter = len(str(max(place(mark.span).end_line for mark in marks)))
    files: dict[str, list[Mark]] = {}
    for mark in marks:
        files.setdefault(mark.span.source.path, []).append(mark)
    drawn: list[str] = []
    for arrow, (path, found) in zip(["-->", *[":::"] * len(files)], files.items(), strict=False):
        spot = place(found[0].span)
        address = f"{printable(path)}:{spot.line}:{spot.column}"
        drawn.append(f"{' ' * gutter}{paint(arrow, '1;34')} {address}")
        if found[0].span.source.text:
            drawn += _file(found, gutter, width, paint)
    return gutter, drawn


def _file(marks: list[Mark], gutter: int, width: int, paint: Paint) -> Iterator[str]:
    bar = paint("|", "1;34")
    yield f"{' ' * gutter} {bar}"
    source, before = marks[0].span.source, 0
    for number in sorted({number for mark in marks for number in _numbers(place(mark.span))}):
        if before and number > before + 1:
            yield paint("...", "1;34")
        before = number
        here = [mark for mark in marks if number in _numbers(place(mark.span))]
        for text, carets in _line(source, number, here, width, paint):
            yield f"{paint(f'{number:>{gutter}}', '1;34')} {bar} {text}".rstrip()
            yield from (f"{' ' * gutter} {bar} {line}" for line in carets)


def _numbers(spot: Place) -> list[int]:
    numbers = list(range(spot.line, spot.end_line + 1))
    return numbers if len(numbers) <= SHOWN_LINES else [*numbers[: SHOWN_LINES - 2], numbers[-1]]


def _line(
    source: SourceFile, number: int, marks: list[Mark], width: int, paint: Paint
) -> Iterator[tuple[str, list[str]]]:
    """A line's text with the underlines below it; once for each window that its marks need."""
    shown, edges = _cells(source.line(number))
    windows: dict[Window, list[str]] = {}
    for mark in marks:
        start, end = _part(mark.span, number, source.line(number))
        window = _window(edges, start, width)
        windows.setdefault(window, []).append(_carets(mark, start, end, number, edges, window, paint))
    for window, carets in windows.items():
        left, right = "…" * (window.first > 0), "…" * (window.last < len(shown))
        yield f"{left}{''.join(shown[window.first : window.last])}{right}", carets


def _part(span: Span, number: int, line: str) -> tuple[int, int]:
    """The part of one line that a span covers, as character offsets in that line."""
    spot = place(span)
    indent = len(line) - len(line.lstrip())
    start = spot.column - 1 if number == spot.line else indent
    end = spot.end_column - 1 if number == spot.end_line else len(line)
    return min(start, len(line)), min(max(end, start), len(line))


def _window(edges: list[int], start: int, width: int) -> Window:
    if edges[-1] <= width:
        return Window(0, len(edges) - 1)
    room = width - 2
    left = min(max(0, edges[start] - room // 3), edges[-1] - room)
    first = bisect_left(edges, left)
    return Window(first, bisect_right(edges, edges[first] + room) - 1)


def _carets(mark: Mark, start: int, end: int, number: int, edges: list[int], window: Window, paint: Paint) -> str:
    start, end = min(max(start, window.first), window.last), min(end, window.last)
    indent = edges[start] - edges[window.first] + (window.first > 0)
    length = max(1, edges[max(end, start)] - edges[start])
    message = f" {printable(mark.message)}" if mark.message and number == place(mark.span).end_line else ""
    return " " * indent + paint(mark.sign * length + message, mark.color)


def _cells(line: str) -> tuple[list[str], list[int]]:
    """Each character as it is shown, and the cell that each begins at; one more for the end."""
    if line.isascii() and line.isprintable():
        return list(line), list(range(len(line) + 1))
    from unicodedata import category, east_asian_width

    shown: list[str] = []
    edges = [0]
    for char in line:
        width = 2 if east_asian_width(char) in "WF" else 1
        kind = category(char)
        if char == "\t":
            width = TAB - edges[-1] % TAB
            char = " " * width
        elif kind in ("Mn", "Me"):
            width = 0
        elif kind in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            char = chr(0x2400 + ord(char)) if ord(char) < 0x20 else "\N{REPLACEMENT CHARACTER}"
        shown.append(char)
        edges.append(edges[-1] + width)
    return shown, edges
