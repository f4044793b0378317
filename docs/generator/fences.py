"""The fenced blocks of a page, and what the words behind their language mean.

    ```prec file=policy.prec       the block is that file, for the commands behind it
    ```prec expect=P101 model=M    linting it (for M) finds P101; without `expect` it must find nothing
    ```console exit=1              commands behind `$ `, and what they print; the last one exits with 1

A page's commands run in one folder that holds the page's files and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(
    r"^(?P<ticks>`{3,})(?P<language>\w+)(?P<facts>(?: +\w+=\S+)*)\n(?P<text>.*?)^(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Fence:
    """One fenced block: `start` and `end` are the offsets of its text in the page."""

    language: str
    facts: dict[str, str]
    text: str
    start: int
    end: int

    @property
    def file(self) -> str | None:
        """The file that this block is."""
        return self.facts.get("file")

    @property
    def exit(self) -> int:
        """The exit status of the last command."""
        return int(self.facts.get("exit", "0"))


def fences(page: str) -> Iterator[Fence]:
    """The blocks of a page in their order."""
    for match in FENCE.finditer(page):
        facts = dict(word.split("=", 1) for word in match["facts"].split())
        yield Fence(match["language"], facts, match["text"], match.start("text"), match.end("text"))
