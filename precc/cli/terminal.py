"""What is written where: colours and tables at a terminal, plain text in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO


def colored(stream: TextIO) -> bool:
    """Whether colours may be written: a terminal that can, and no `NO_COLOR` (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_json(value: Any) -> None:
    """This writes a machine-readable result."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """This writes a table. A column whose head begins with `>` is aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _drawn(columns, cells, title)
    else:
        print(plain_table(columns, cells, title), end="")


def plain_table(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str = "") -> str:
    """A table in columns of plain text."""
    heads = [column.removeprefix(">") for column in columns]
    widths = [max(len(row[at]) for row in (heads, *cells)) for at in range(len(heads))]
    right = [column.startswith(">") for column in columns]
    lines = [title] if title else []
    for row in (heads, *cells):
        padded = zip(row, widths, right, strict=True)
        lines.append("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in padded).rstrip())
    return "\n".join(lines) + "\n"


def _drawn(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def gib(size: int) -> str:
    """A size in bytes, exact enough to tell 1.90625 GiB."""
    return f"{size / 2**30:,.5f} GiB"


def percent(fraction: float) -> str:
    """A share to one decimal."""
    return f"{fraction * 100:.1f} %"
