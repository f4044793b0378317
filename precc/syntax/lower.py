"""This module turns concrete trees into the abstract syntax, and finds what one file shows by itself.

Nothing is filled in and no name is looked up: a bare word in a spec becomes a reference, whether or not a
`let` of that name exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from precc.diagnostics import Diagnostic
from precc.formats.table import FORMATS
from precc.source import SourceFile
from precc.syntax import ast
from precc.syntax.conditions import lower_condition
from precc.syntax.findings import Findings, listed, nearest, suggest
from precc.syntax.ignores import lower_ignores
from precc.syntax.layouts import lower_layout
from precc.syntax.order import check_order
from precc.syntax.parser import Concrete, parse_tree
from precc.syntax.selectors import lower_selectors
from precc.syntax.specs import SPEC_WORDS, is_name, lower_spec, report_format
from precc.syntax.tree import Token, Tree

KV_CACHE_FORMATS = ("bf16", "fp8")


def parse(source: SourceFile) -> tuple[ast.File, tuple[Diagnostic, ...]]:
    """The abstract tree of what could be understood in a file, and everything that is wrong with it."""
    return lower(source, parse_tree(source))


def lower(source: SourceFile, concrete: Concrete) -> tuple[ast.File, tuple[Diagnostic, ...]]:
    """The abstract tree of a concrete one; findings are in the order of the text."""
    findings = Findings(source)
    findings.diagnostics.extend(concrete.findings)
    lowered = (_LOWER[line.tree.data](line.tree, findings) for line in concrete.statements)
    statements = tuple(statement for statement in lowered if statement is not None)
    check_order(statements, findings)
    ignores = tuple(ignore for comment in concrete.comments for ignore in lower_ignores(comment, findings))
    file = ast.File(source, statements, ignores)
    return file, tuple(sorted(findings.diagnostics, key=_offset))


def _offset(finding: Diagnostic) -> int:
    return finding.span.start if finding.span else 0


def _quoted(tree: Tree, what: str, findings: Findings) -> str | None:
    """The text between the quotes of a name."""
    token = tree.tokens[-1]
    text = token.text[1:-1]
    if text.strip() and text.isprintable():
        return text
    findings.report("P011", f"the name of {what} is empty or unprintable", token, help='write it in quotes: "nvfp4_rl"')
    return None


def _policy(tree: Tree, findings: Findings) -> ast.Statement | None:
    name = _quoted(tree, "a policy", findings)
    return ast.PolicyName(name, span=findings.span(tree)) if name else None


def _extends(tree: Tree, findings: Findings) -> ast.Statement | None:
    name = _quoted(tree, "what a policy extends", findings)
    return ast.Extends(name, span=findings.span(tree)) if name else None


def _let(tree: Tree, findings: Findings) -> ast.Statement | None:
    name = tree.tokens[1]
    spec = lower_spec(tree.trees[0], findings)
    if name.text in SPEC_WORDS or not is_name(name.text):
        why = "already means something in a spec" if name.text in SPEC_WORDS else "is no plain name"
        findings.report("P013", f"`{name.text}` {why} and cannot name a spec", name, help="choose another name")
        return None
    return ast.Let(name.text, spec, span=findings.span(tree))


def _default(tree: Tree, findings: Findings) -> ast.Statement | None:
    return ast.Default(lower_spec(tree.trees[0], findings), span=findings.span(tree))


def _rule(tree: Tree, findings: Findings) -> ast.Statement | None:
    selectors = lower_selectors(tree.trees[0], findings)
    spec = lower_spec(tree.trees[1], findings)
    return ast.Rule(selectors, spec, span=findings.span(tree)) if selectors else None


def _kv_cache(tree: Tree, findings: Findings) -> ast.Statement | None:
    format, *rest = tree.trees[0].tokens
    if format.text not in FORMATS:
        _report_cache_format(format, findings)
        return None
    if rest or format.text not in KV_CACHE_FORMATS:
        message = f"the KV cache is {listed(KV_CACHE_FORMATS, 'or')}, and nothing else"
        findings.report("P011", message, tree.trees[0], help="write `kv_cache: bf16` or `kv_cache: fp8`")
        return None
    return ast.KvCache(format.text, span=findings.span(tree))


def _report_cache_format(token: Token, findings: Findings) -> None:
    close = nearest(token.text, KV_CACHE_FORMATS)
    if not close:
        report_format(token, findings)
        return
    message = f"there is no format `{token.text}`"
    help = suggest(close, KV_CACHE_FORMATS)
    findings.report("P002", message, token, help=help, fix=findings.respelling(token, close))


def _targets(tree: Tree, findings: Findings) -> ast.Statement | None:
    names: list[str] = []
    for token in tree.tokens[1:]:
        if not is_name(token.text):
            findings.report("P018", f"`{token.text}` is no name of a target", token, help="write `targets: te, sglang`")
        elif token.text in names:
            findings.report("P006", f"`{token.text}` is named twice", token, help="remove one of the two")
        else:
            names.append(token.text)
    return ast.Targets(tuple(names), span=findings.span(tree)) if names else None


def _expect(tree: Tree, findings: Findings) -> ast.Statement | None:
    condition = lower_condition(tree.trees[0], findings)
    return ast.Expect(condition, span=findings.span(tree)) if condition else None


Lowering: TypeAlias = Callable[[Tree, Findings], ast.Statement | None]

_LOWER: dict[str, Lowering] = {
    "policy": _policy,
    "extends": _extends,
    "let": _let,
    "default": _default,
    "rule": _rule,
    "kv_cache": _kv_cache,
    "layout": lower_layout,
    "targets": _targets,
    "expect": _expect,
}
