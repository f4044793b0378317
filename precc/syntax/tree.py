"""Tokens and concrete trees: the text of a policy, cut up and nested, with every word as it was written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias


class Token(NamedTuple):
    """A piece of text between two character offsets, and the terminal that it matched."""

    type: str
    text: str
    start: int
    end: int


class Tree:
    """A node named after its grammar rule, between two character offsets (its parentheses included)."""

    __slots__ = ("children", "data", "end", "start")

    def __init__(self, data: str, children: list[Child], start: int, end: int) -> None:
        self.data = data
        self.children = children
        self.start = start
        self.end = end

    @property
    def trees(self) -> list[Tree]:
        """The children that are nodes."""
        return [child for child in self.children if isinstance(child, Tree)]

    @property
    def tokens(self) -> list[Token]:
        """The children that are tokens."""
        return [child for child in self.children if isinstance(child, Token)]

    def leaves(self) -> Iterator[Token]:
        """Every token below this node, in the order of the text."""
        pending: list[Child] = [self]
        while pending:
            child = pending.pop()
            if isinstance(child, Token):
                yield child
            else:
                pending.extend(reversed(child.children))


Child: TypeAlias = Tree | Token
