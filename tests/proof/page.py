"""`docs/verification.md`: the parts that judges write, between `<!-- judged: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/verification.md"

MARKED = re.compile(r"(<!-- judged: (?P<name>[^\n]+?) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = (heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def part(name: str) -> str:
    """One part of the page as it stands."""
    return next(
        found["text"].strip("\n") + "\n"
        for found in MARKED.finditer(PAGE.read_text(encoding="utf-8"))
        if found["name"] == name
    )


def rows(text: str) -> list[list[str]]:
    """The cells of the table in a part, its heads first."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.replace("\\|", "|") for cell in re.split(r"(?<!\\) \| ", line[2:-2])] for line in lines]
    return [row for row in cells if set(row) != {"---"}]


def write(parts: Mapping[str, str]) -> None:
    """This puts parts in the place of those that stand there."""
    text = PAGE.read_text(encoding="utf-8")

    def filled(found: re.Match[str]) -> str:
        made = parts.get(found["name"])
        return found[0] if made is None else f"{found[1]}\n{made.strip()}\n\n{found[4]}"

    PAGE.write_text(MARKED.sub(filled, text), encoding="utf-8")
