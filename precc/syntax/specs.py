"""This module lowers specs: each clause is a few words, read from left to right."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from precc.diagnostics import Edit, Fix
from precc.formats.table import FORMATS, SCOPES
from precc.syntax import ast
from precc.syntax.contradictions import check_contradictions
from precc.syntax.findings import Findings, listed, nearest, suggest
from precc.syntax.options import OPTION_WORDS, Operand, lower_options
from precc.syntax.tree import Token, Tree

BACKWARD_MODES: tuple[str, ...] = get_args(ast.BackwardMode)
TRAIN_MODES = ("bf16", "fake_quant")
SWITCHES = ("hadamard", "stochastic_rounding")
CLAUSE_WORDS = ("weight", "input", "backward", "train", *SWITCHES, *OPTION_WORDS)
MISPLACED = {
    **dict.fromkeys(BACKWARD_MODES, "backward"),
    **dict.fromkeys(("mae", "mse", "max"), "four_over_six"),
    "fake_quant": "train",
}
"""Words that mean something behind another one only."""

SPEC_WORDS = frozenset((*FORMATS, *SCOPES, *CLAUSE_WORDS))
"""Every word that means something in a spec, so that no `let` can bear its name."""


def is_name(text: str) -> bool:
    """Whether a word could be the name of a `let`."""
    return text.isascii() and text.isidentifier()


def lower_spec(tree: Tree, findings: Findings) -> ast.Spec:
    """The clauses that could be understood; a contradiction between two of them is reported."""
    clauses = [lower_clause(child, findings) for child in tree.trees]
    spec = ast.Spec(tuple(clause for clause in clauses if clause is not None), span=findings.span(tree))
    check_contradictions(spec, findings)
    return spec


def lower_clause(tree: Tree, findings: Findings) -> ast.Clause | None:
    """One clause, or None when it was reported."""
    words = tree.tokens
    first = words[0].text
    if first in FORMATS:
        return _operand(tree, None, 0, findings)
    reader = _READERS.get(first)
    if reader:
        return reader(tree, findings)
    if len(words) == 1 and is_name(first):
        return ast.ReferenceClause(first, span=findings.span(tree))
    report_format(words[0], findings, followed_by=words[1].text if words[1:] else None)
    return None


def report_format(token: Token, findings: Findings, followed_by: str | None = None) -> None:
    """Report a word that stands where a format should."""
    close = nearest(token.text, (*FORMATS, *(CLAUSE_WORDS if followed_by else ())))
    if close and close[0] not in FORMATS:
        message = f"`{token.text}` starts no clause"
        fix = findings.respelling(token, close)
        findings.report("P018", message, token, help=suggest(close, FORMATS), fix=fix)
        return
    behind = f", so `{followed_by}` cannot stand behind it" if followed_by else ""
    message = f"there is no format `{token.text}`{behind}"
    fix = findings.respelling(token, close)
    findings.report("P002", message, token, help=suggest(close, FORMATS), fix=fix)


def _operand(tree: Tree, operand: Operand | None, index: int, findings: Findings) -> ast.OperandClause | None:
    """`[weight|input] FORMAT` and what stands behind; `index` is where the format is."""
    words = tree.tokens
    if index == len(words):
        message = f"`{operand}` needs a format behind it"
        findings.report("P002", message, tree, help=f"write for example `{operand} fp8`")
        return None
    token = words[index]
    if token.text not in FORMATS:
        report_format(token, findings)
        return None
    options, rest = lower_options(words[index + 1 :], operand, findings)
    _report_rest(words, rest, findings)
    return ast.OperandClause(operand, token.text, options, span=findings.span(tree))


def _option(tree: Tree, findings: Findings) -> ast.Clause | None:
    """Options in a clause of their own. A scope or `static` alone says nothing: it needs its operand."""
    words = tree.tokens
    first = words[0].text
    if first in SCOPES or first == "static":
        example = "input fp8 static" if first == "static" else f"nvfp4 {first}"
        message = f"`{first}` stands behind a format, not alone"
        findings.report("P018", message, words[0], help=f"write it behind its format, as in `{example}`")
        return None
    options, rest = lower_options(words, "weight", findings)
    _report_rest(words, rest, findings)
    return ast.OptionClause(options, span=findings.span(tree))


def _backward(tree: Tree, findings: Findings) -> ast.Clause | None:
    mode = _mode(tree, BACKWARD_MODES, findings)
    return ast.BackwardClause(mode, span=findings.span(tree)) if mode else None  # type: ignore[arg-type]


def _train(tree: Tree, findings: Findings) -> ast.Clause | None:
    mode = _mode(tree, TRAIN_MODES, findings)
    return ast.TrainClause(mode, span=findings.span(tree)) if mode else None  # type: ignore[arg-type]


def _mode(tree: Tree, modes: tuple[str, ...], findings: Findings) -> str | None:
    """The second word of a two-word clause."""
    words = tree.tokens
    if len(words) > 1 and words[1].text in modes:
        _report_rest(words, words[2:], findings)
        return words[1].text
    if len(words) == 1:
        message = f"`{words[0].text}` needs a mode behind it"
        findings.report("P018", message, tree, help=f"write {_choices(words[0].text, modes)}")
        return None
    close = nearest(words[1].text, modes)
    message = f"`{words[0].text}` has no mode `{words[1].text}`"
    help = f"write {_choices(words[0].text, close or modes)}"
    findings.report("P018", message, words[1], help=help, fix=findings.respelling(words[1], close))
    return None


def _choices(word: str, modes: tuple[str, ...]) -> str:
    return listed((f"{word} {mode}" for mode in modes), "or")


def _switch(tree: Tree, findings: Findings) -> ast.Clause | None:
    words = tree.tokens
    _report_rest(words, words[1:], findings)
    return ast.SwitchClause(words[0].text, span=findings.span(tree))  # type: ignore[arg-type]


def _report_rest(words: list[Token], rest: list[Token], findings: Findings) -> None:
    """Report what a clause does not understand: a forgotten comma, or a word that means nothing here."""
    if not rest:
        return
    token, before = rest[0], words[len(words) - len(rest) - 1]
    if token.text in FORMATS or token.text in CLAUSE_WORDS:
        gap = findings.source.span(before.end, token.start)
        fix = Fix((Edit(gap, ", "),), True) if not gap.text.strip() else None
        message = f"a comma is missing before `{token.text}`"
        help = f"write `{before.text}, {' '.join(word.text for word in rest)}`"
        findings.report("P001", message, token, help=help, fix=fix)
        return
    if token.text in MISPLACED:
        owner = MISPLACED[token.text]
        message = f"`{token.text}` stands behind `{owner}`, not alone"
        help = f"write `{' '.join((owner, *(word.text for word in rest)))}`"
        findings.report("P018", message, token, help=help)
        return
    close = nearest(token.text, (*SCOPES, *OPTION_WORDS))
    is_scope = token.text.startswith("per_") or (bool(close) and close[0] in SCOPES)
    message = f"there is no scope `{token.text}`" if is_scope else f"`{token.text}` means nothing here"
    help = suggest(close, SCOPES if is_scope else (*SCOPES, *OPTION_WORDS))
    fix = findings.respelling(token, close)
    findings.report("P003" if is_scope else "P018", message, token, help=help, fix=fix)


_READERS: dict[str, Callable[[Tree, Findings], ast.Clause | None]] = {
    "weight": lambda tree, findings: _operand(tree, "weight", 1, findings),
    "input": lambda tree, findings: _operand(tree, "input", 1, findings),
    "backward": _backward,
    "train": _train,
    **dict.fromkeys(SWITCHES, _switch),
    **dict.fromkeys((*OPTION_WORDS, *SCOPES), _option),
}
