"""This module runs the LALR tables over a text, without recursion and with one finding for each bad line."""

from __future__ import annotations

from typing import NamedTuple

from precc.diagnostics import Diagnostic
from precc.source import SourceFile
from precc.syntax._tables import ACTIONS, END_STATE, GOTO, RULES
from precc.syntax.lexer import LogicalLine, logical_lines, tokenize
from precc.syntax.tree import Child, Token, Tree

MAX_DEPTH = 64
"""Parentheses inside parentheses, and `in`/`except` in one chain."""

END = "$END"


class ParsedLine(NamedTuple):
    """A statement as a tree and as its tokens; the tree leaves punctuation out."""

    tree: Tree
    tokens: list[Token]


class Concrete(NamedTuple):
    """A file as concrete trees: the statements that parse, every comment, a finding for each bad line."""

    statements: list[ParsedLine]
    comments: list[Token]
    findings: list[Diagnostic]


class Unexpected(NamedTuple):
    """Where a line stopped to make sense; `expected` are the terminals that could have stood there."""

    token: Token
    previous: Token | None
    expected: frozenset[str]


def parse_tree(source: SourceFile) -> Concrete:
    """The concrete tree of a file; a bad line does not change how the next logical line is read."""
    tokens = tokenize(source.text)
    result = Concrete([], [token for token in tokens if token.type == "COMMENT"], [])
    for line in logical_lines([token for token in tokens if token.type != "COMMENT"], MAX_DEPTH):
        if line.tokens:
            _parse_into(result, source, line)
    return result


def _parse_into(result: Concrete, source: SourceFile, line: LogicalLine) -> None:
    outcome: Tree | Unexpected | None = None if line.too_deep else parse_statement(line.tokens)
    if isinstance(outcome, Tree):
        result.statements.append(ParsedLine(outcome, line.tokens))
        return
    from precc.syntax.mistakes import explain, too_deep

    finding = explain(source, line, outcome) if outcome else too_deep(source, line)
    result.findings.append(finding)


def parse_statement(tokens: list[Token]) -> Tree | Unexpected:
    """The tree of one statement, by shift and reduce."""
    states, values = [0], list[Child]()
    end = Token(END, "", tokens[-1].end, tokens[-1].end)
    previous: Token | None = None
    for token in (*tokens, end):
        action = ACTIONS[states[-1]].get(token.type)
        while action is not None and action < 0:
            _reduce(-1 - action, states, values)
            if token is end and states[-1] == END_STATE:
                result = values[-1]
                assert isinstance(result, Tree)
                return result
            action = ACTIONS[states[-1]].get(token.type)
        if action is None:
            return Unexpected(token, previous, frozenset(ACTIONS[states[-1]]))
        states.append(action)
        values.append(token)
        previous = token
    raise AssertionError("the tables accept at the end of the line or not at all")


def _reduce(rule: int, states: list[int], values: list[Child]) -> None:
    """Replace the children of a rule on the stacks by their node, shaped as lark shapes its trees."""
    origin, name, expand_single, expansion = RULES[rule]
    first = len(values) - len(expansion)
    start, end = values[first].start, values[-1].end
    children = _kept_children(values[first:], expansion)
    del values[first:], states[first + 1 :]
    values.append(children[0] if expand_single and len(children) == 1 else Tree(name, children, start, end))
    states.append(GOTO[states[-1]][origin])


def _kept_children(values: list[Child], expansion: tuple[tuple[str, bool], ...]) -> list[Child]:
    """The children that the tree keeps; nodes of rules named `_…` give theirs to the parent.

    The list of the first such node is reused, so that a long repetition costs linear time.
    """
    children: list[Child] = []
    for value, (symbol, kept) in zip(values, expansion, strict=True):
        if isinstance(value, Tree) and symbol.startswith("_"):
            children = children + value.children if children else value.children
        elif kept:
            children.append(value)
    return children
