"""This module checks the statements of a file against each other: what stands once, and what comes first."""

from __future__ import annotations

from precc.source import Span
from precc.syntax import ast
from precc.syntax.findings import Findings


def check_order(statements: tuple[ast.Statement, ...], findings: Findings) -> None:
    """Report a second statement of a kind that stands once, and an `extends` that does not come first."""
    seen: dict[str, Span] = {}
    blocking: Span | None = None
    for statement in statements:
        key = _once(statement)
        if key and key in seen:
            _report_twice(statement, key, seen[key], findings)
        elif isinstance(statement, ast.Extends) and blocking:
            message = "`extends` comes before everything but `policy`"
            help = "move this line up: the rules of the extended policy are read first"
            findings.report("P010", message, statement.span, help=help)
        if key:
            seen.setdefault(key, statement.span)
        if not isinstance(statement, ast.PolicyName):
            blocking = blocking or statement.span


def _once(statement: ast.Statement) -> str | None:
    """The start of a statement that may stand once in a file."""
    if isinstance(statement, ast.Layout):
        return f"{statement.side}:"
    if isinstance(statement, ast.Let):
        return f"let {statement.name}"
    return _ONCE.get(type(statement))


_ONCE: dict[type[ast.Statement], str] = {
    ast.PolicyName: "policy",
    ast.Extends: "extends",
    ast.Default: "default:",
    ast.KvCache: "kv_cache:",
    ast.Targets: "targets:",
}


def _report_twice(statement: ast.Statement, key: str, first: Span, findings: Findings) -> None:
    message = f"`{key}` stands twice in this file"
    help = "choose another name" if isinstance(statement, ast.Let) else "keep one of the two"
    findings.report("P006", message, statement.span, help=help, first=first)
