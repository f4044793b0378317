"""This module builds the parser's tables from `grammar.lark`: run `python -m precc.syntax.tables [--check]`.

It is the only importer of lark, a development dependency. The result, `_tables.py`, holds plain literals and
is the same on every run: states are numbered in the order in which a walk over sorted symbols finds them.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from pprint import pformat
from typing import Any

from lark import Lark
from lark.parsers.lalr_analysis import Shift

GRAMMAR = Path(__file__).with_name("grammar.lark")
OUTPUT = Path(__file__).with_name("_tables.py")
START = "statement"
IGNORED = ("COMMENT", "SPACE")

HEADER = '''"""Generated from grammar.lark by `python -m precc.syntax.tables`; do not edit."""

# fmt: off
# ruff: noqa: E501
'''


def build_lark(start: str = START, **options: Any) -> Lark:
    """The grammar as lark itself runs it, for the tables and for tests that compare."""
    return Lark(GRAMMAR.read_text("utf-8"), parser="lalr", lexer="basic", start=start, **options)


def terminal_patterns(parser: Lark) -> list[tuple[str, str]]:
    """Name and regular expression of every terminal, in the order in which they are tried."""
    ordered = sorted(
        parser.terminals,
        key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name),
    )
    return [(terminal.name, terminal.pattern.to_regexp()) for terminal in ordered]


def rule_entry(rule: Any) -> tuple[str, bool, tuple[tuple[str, bool], ...]]:
    """Node name, whether a single child replaces the node, and (symbol, kept) of every child."""
    children = ((str(symbol.name), not (symbol.is_term and symbol.filter_out)) for symbol in rule.expansion)
    expand_single = bool(rule.options.expand1 and not rule.alias)
    return str(rule.alias or rule.origin.name), expand_single, tuple(children)


def parse_tables(parser: Lark) -> dict[str, Any]:
    """The automaton, renumbered so that it does not depend on the run.

    An action is a state to shift to, or `-1 - rule` to reduce by; `GOTO` maps a rule's name to a state.
    """
    table = parser.parser.parser._parse_table
    rules = sorted(parser.rules, key=lambda rule: (rule.origin.name, rule.order, rule_entry(rule)))
    rule_numbers = {rule: number for number, rule in enumerate(rules)}
    order = _walk(table)
    numbers = {state: number for number, state in enumerate(order)}
    actions: list[dict[str, int]] = []
    goto: list[dict[str, int]] = []
    terminals = {terminal.name for terminal in parser.terminals} | {"$END"}
    for state in order:
        actions.append({})
        goto.append({})
        for symbol, (action, target) in sorted(table.states[state].items()):
            if action is Shift and symbol in terminals:
                actions[-1][symbol] = numbers[target]
            elif action is Shift:
                goto[-1][symbol] = numbers[target]
            else:
                actions[-1][symbol] = -1 - rule_numbers[target]
    return {
        "RULES": [(str(rule.origin.name), *rule_entry(rule)) for rule in rules],
        "END_STATE": numbers[table.end_states[START]],
        "ACTIONS": actions,
        "GOTO": goto,
    }


def _walk(table: Any) -> list[int]:
    """Every state, breadth first from the start, symbols in alphabetical order."""
    order = [table.start_states[START]]
    queue = deque(order)
    while queue:
        for _, (action, target) in sorted(table.states[queue.popleft()].items(), key=lambda item: item[0]):
            if action is Shift and target not in order:
                order.append(target)
                queue.append(target)
    return order


def render() -> str:
    """The text of `_tables.py`."""
    parser = build_lark()
    values: dict[str, Any] = {
        "TERMINALS": terminal_patterns(parser),
        "IGNORED": IGNORED,
        **parse_tables(parser),
    }
    types = {
        "TERMINALS": "list[tuple[str, str]]",
        "IGNORED": "tuple[str, ...]",
        "RULES": "list[tuple[str, str, bool, tuple[tuple[str, bool], ...]]]",
        "END_STATE": "int",
        "ACTIONS": "list[dict[str, int]]",
        "GOTO": "list[dict[str, int]]",
    }
    parts = [f"{name}: {types[name]} = {pformat(value, width=108)}\n" for name, value in values.items()]
    return HEADER + "\n" + "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the tables, or with `--check` only say whether they are up to date."""
    text = render()
    if "--check" not in arguments:
        OUTPUT.write_text(text, "utf-8")
        return 0
    if OUTPUT.exists() and OUTPUT.read_text("utf-8") == text:
        return 0
    sys.stderr.write("precc/syntax/_tables.py is stale; run `python -m precc.syntax.tables`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
