"""This module lowers the options behind an operand: its scope, group, scales, block and rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from precc.formats.table import SCOPES
from precc.records import replace
from precc.syntax import ast
from precc.syntax.findings import Findings
from precc.syntax.tree import Token

Operand: TypeAlias = Literal["weight", "input"]
OPTION_WORDS = ("group", "scales", "weight_block", "four_over_six", "static")


def is_whole(text: str) -> bool:
    """Whether a word is a whole number from 1 on, of a size that anybody needs."""
    return text.isascii() and text.isdecimal() and len(text) <= 6 and not text.startswith("0")


def lower_options(words: list[Token], operand: Operand | None, findings: Findings) -> tuple[ast.Options, list[Token]]:
    """The options at the start of some words, and the words behind them that are none."""
    options, rest = ast.Options(), words
    while rest:
        word = rest[0].text
        name = "scope" if word in SCOPES else word
        reader = _READERS.get(name)
        if reader is None:
            break
        value, length = reader(rest, findings)
        taken, rest = rest[:length], rest[length:]
        if getattr(options, name) not in (None, False):
            message = f"`{word}` is a second {name} for one operand"
            findings.report("P007", message, taken[0], help="keep one of the two")
        elif name == "static" and operand != "input":
            message = "`static` belongs to the input: weights have no activation scale"
            findings.report("P018", message, taken[0], help="write it behind the input's format: `input fp8 static`")
        elif value is not None:
            options = replace(options, **{name: value})
    return options, rest


Reading: TypeAlias = tuple[Any, int]
"""A value (None when it was reported) and how many words it took."""


def _scope(words: list[Token], findings: Findings) -> Reading:
    return words[0].text, 1


def _static(words: list[Token], findings: Findings) -> Reading:
    return True, 1


def _group(words: list[Token], findings: Findings) -> Reading:
    if len(words) > 1 and is_whole(words[1].text):
        return int(words[1].text), 2
    return _bad(words, "a group size is a whole number from 1 on", "write for example `group 128`", findings)


def _scales(words: list[Token], findings: Findings) -> Reading:
    if len(words) > 1 and words[1].text in ("fp32", "pow2"):
        return words[1].text, 2
    return _bad(words, "scales are `fp32` or `pow2`", "write `scales fp32` or `scales pow2`", findings)


def _weight_block(words: list[Token], findings: Findings) -> Reading:
    if len(words) > 1 and words[1].text == "16x16":
        return (16, 16), 2
    return _bad(words, "the only weight block is 16x16", "write `weight_block 16x16`", findings)


def _bad(words: list[Token], message: str, help: str, findings: Findings) -> Reading:
    """Report the value behind an option word, or its absence."""
    has_value = len(words) > 1
    place = findings.span(words[1]) if has_value else findings.span(words[0])
    wrong = f", not `{words[1].text}`" if has_value else f"; none stands behind `{words[0].text}`"
    findings.report("P011", message + wrong, place, help=help)
    return None, 2 if has_value else 1


def _four_over_six(words: list[Token], findings: Findings) -> Reading:
    """`four_over_six [mae|mse] [max 256|448]`, each part at most once."""
    result, length = ast.FourOverSix(), 1
    if length < len(words) and words[length].text in ("mae", "mse"):
        result = replace(result, error=words[length].text)
        length += 1
    if length < len(words) and words[length].text == "max":
        maximum = words[length + 1].text if length + 1 < len(words) else None
        if maximum in ("256", "448"):
            return replace(result, maximum=256 if maximum == "256" else 448), length + 2
        message = "the maximum of `four_over_six` is 256 or 448"
        _, used = _bad(words[length:], message, "write `max 256` or `max 448`", findings)
        return None, length + used
    return result, length


_READERS: dict[str, Callable[[list[Token], Findings], Reading]] = {
    "scope": _scope,
    "static": _static,
    "group": _group,
    "scales": _scales,
    "weight_block": _weight_block,
    "four_over_six": _four_over_six,
}
