"""The generated tables are up to date, and run as lark would run the grammar."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import lark
import pytest
from hypothesis import given
from syntax.cases import finding_cases
from syntax.strategies import policies, scraps

from precc.source import SourceFile
from precc.syntax import ast
from precc.syntax.parser import parse_tree
from precc.syntax.tables import build_lark
from precc.syntax.tree import Tree
from precc.syntax.writing import file_text


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_tables_are_up_to_date(seed: str) -> None:
    """And do not depend on the order of hashes."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-m", "precc.syntax.tables", "--check"]
    assert subprocess.run(command, env=environment, check=False).returncode == 0


class LogicalLines:
    """What a newline means to lark: nothing inside parentheses, and there is one at the end."""

    always_accept = ("_NEWLINE",)

    def process(self, stream: Iterator[lark.Token]) -> Iterator[lark.Token]:
        """The tokens without the newlines inside parentheses."""
        depth = 0
        for token in stream:
            depth += (token.type == "LPAR") - (token.type == "RPAR")
            if token.type != "_NEWLINE" or depth <= 0:
                yield token
        yield lark.Token("_NEWLINE", "\n")


@cache
def reference() -> lark.Lark:
    """Lark's own parser of whole files."""
    return build_lark("file", postlex=LogicalLines())


def lark_shape(text: str) -> list[Any] | None:
    """The statements as lark reads them, or None when it refuses the file."""
    try:
        tree = reference().parse(text.removeprefix("\ufeff"))
    except lark.exceptions.UnexpectedInput:
        return None
    return [shape(child) for child in tree.children]


def own_shape(text: str) -> list[Any] | None:
    """The statements as the driver reads them, or None when it reports any line."""
    concrete = parse_tree(SourceFile("a.prec", text))
    return None if concrete.findings else [shape(line.tree) for line in concrete.statements]


def shape(node: Any) -> Any:
    """A tree of either parser as nested tuples."""
    if isinstance(node, Tree | lark.Tree):
        return (str(node.data), *map(shape, node.children))
    return (str(node.type), str(node) if isinstance(node, lark.Token) else node.text)


@given(scraps)
def test_the_driver_reads_scraps_as_lark_does(text: str) -> None:
    """It accepts the same texts, and makes the same trees of them."""
    assert own_shape(text) == lark_shape(text)


@given(policies())
def test_the_driver_reads_policies_as_lark_does(file: ast.File) -> None:
    """Every statement of the language."""
    text = file_text(file)
    assert own_shape(text) == lark_shape(text) is not None


@pytest.mark.parametrize("case", list(finding_cases()), ids=lambda case: case.title)
def test_the_driver_reads_the_cases_as_lark_does(case: Any) -> None:
    """Good lines and bad ones."""
    assert own_shape(case.policy) == lark_shape(case.policy)


def test_a_lint_loads_no_lark() -> None:
    """The parser runs on its tables alone."""
    program = "import sys, precc.syntax.lower; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
