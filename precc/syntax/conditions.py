"""This module lowers the condition of an `expect`."""

from __future__ import annotations

import re
from fractions import Fraction

from precc.formats.table import FORMATS
from precc.syntax import ast
from precc.syntax.findings import Findings, nearest, suggest
from precc.syntax.selectors import lower_selector
from precc.syntax.specs import report_format
from precc.syntax.tree import Token, Tree

MEASURES = ("fraction", "bits_per_weight", "size")
COMPARISONS = (">=", "<=", ">", "<")
UNITS: dict[str, int] = {"B": 1} | {
    f"{prefix}{ending}": base**power
    for power, prefix in enumerate("KMGT", 1)
    for ending, base in (("iB", 1024), ("B", 1000))
}

_QUANTITY = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)[ \t]*([A-Za-z]*|%)"
_FORMS = "write `fraction(nvfp4) >= 75%`, `bits_per_weight <= 5.0` or `size <= 20 GiB`"


def lower_condition(tree: Tree, findings: Findings) -> ast.Condition | None:
    """The condition, or None when it was reported."""
    return _is(tree, findings) if tree.data == "is_condition" else _measure(tree, findings)


def _is(tree: Tree, findings: Findings) -> ast.Condition | None:
    selector = lower_selector(tree.trees[0], findings)
    token = tree.tokens[-1]
    if token.text not in FORMATS and token.text != "unquantized":
        close = nearest(token.text, (*FORMATS, "unquantized"))
        message = f"there is no format `{token.text}`"
        help = suggest(close, (*FORMATS, "unquantized"))
        findings.report("P002", message, token, help=help, fix=findings.respelling(token, close))
        return None
    if selector is None:
        return None
    format = None if token.text == "unquantized" else token.text
    return ast.IsCondition(selector, format, span=findings.span(tree))


def _measure(tree: Tree, findings: Findings) -> ast.Condition | None:
    name, *argument, comparison = tree.tokens
    if name.text not in MEASURES:
        close = nearest(name.text, MEASURES)
        fix = findings.respelling(name, close)
        findings.report("P018", f"nothing called `{name.text}` can be measured", name, help=_FORMS, fix=fix)
        return None
    if comparison.text not in COMPARISONS:
        message = f"`{comparison.text}` cannot compare a measure; it is rarely exact"
        findings.report("P011", message, comparison, help="write `>=`, `<=`, `>` or `<`")
        return None
    if bool(argument) != (name.text == "fraction"):
        findings.report("P011", _argument_message(name.text), name, help=_FORMS)
        return None
    return _compared(tree, name.text, argument, comparison.text, findings)


def _argument_message(name: str) -> str:
    if name == "fraction":
        return "`fraction` needs the format whose share it is"
    return f"`{name}` is about the whole model and takes nothing in parentheses"


def _compared(
    tree: Tree, name: str, argument: list[Token], comparison: str, findings: Findings
) -> ast.Condition | None:
    sign: ast.Comparison = comparison  # type: ignore[assignment]
    bound = _bound(tree.trees[0], name, findings)
    span = findings.span(tree)
    if argument and argument[0].text not in FORMATS:
        report_format(argument[0], findings)
        return None
    if bound is None:
        return None
    if name == "fraction":
        return ast.FractionCondition(argument[0].text, sign, bound, span=span)
    if name == "size":
        return ast.SizeCondition(sign, int(bound), span=span)
    return ast.BitsCondition(sign, bound, span=span)


def _bound(tree: Tree, name: str, findings: Findings) -> Fraction | None:
    """The number behind a comparison: a share, a number of bits, or bytes."""
    text = findings.span(tree).text
    match = re.fullmatch(_QUANTITY, text)
    wrong = f"`{text}` is no number" if match is None else _wrong_unit(name, match[2])
    if match is None or wrong:
        findings.report("P011", wrong or "", tree, help=_FORMS)
        return None
    value = Fraction(match[1])
    if name == "size":
        return value * UNITS[match[2]]
    if name == "fraction" and value > 100:
        findings.report("P011", f"`{text}` is more than the whole model", tree, help=_FORMS)
        return None
    return value / 100 if name == "fraction" else value


def _wrong_unit(name: str, unit: str) -> str | None:
    if name == "fraction":
        return None if unit == "%" else "a fraction is compared with a percentage"
    if name == "bits_per_weight":
        return "a number of bits has no unit" if unit else None
    if not unit:
        return "a size needs a unit"
    return None if unit in UNITS else f"there is no unit `{unit}`"
