"""No input makes the parser fail, recurse or take more than linear time."""

from __future__ import annotations

import pytest
from counting import calls
from hypothesis import given
from hypothesis import strategies as st
from syntax.strategies import scraps

from precc.source import SourceFile
from precc.syntax import format_source, parse
from precc.syntax.reading import decode_source

ONE_LINE = {
    "parentheses that open": "(" * 100_000,
    "nested parentheses": "(" * 100_000 + "a" + ")" * 100_000 + ": bf16",
    "nested brackets": "[" * 100_000 + "]" * 100_000,
    "braces": "{" * 100_000,
    "quotes": '"' * 100_001,
    "one long word": "a" * 1_000_000,
    "one long chain": "a in " * 50_000 + "b: bf16",
    "products of braces": "{a,b}" * 100_000 + ": bf16",
    "digits in brackets": f"layers[{'9' * 100_000}]: bf16",
    "digits in a group": f"a: weight int4 group {'9' * 100_000}",
    "digits in a bound": f"expect fraction(nvfp4) >= {'9' * 100_000}%",
    "an endless unknown word": f"a: {'q' * 200_000} per_token",
    "forgotten commas": "a: " + "nvfp4 " * 50_000,
    "a carriage return": "default: bf16\ra: bf16",
    "NUL": "\0",
    "any depth, again and again": "**." * 30_000 + "a: bf16",
    "an ignore with endless codes": "a: bf16  # precc: ignore[" + "P104 " * 20_000,
    "an ignore with endless spaces": "a: bf16  # precc: ignore" + " " * 100_000,
}


@pytest.mark.parametrize("text", ONE_LINE.values(), ids=ONE_LINE.keys())
def test_a_hostile_line_is_one_finding(text: str) -> None:
    """One clear finding, with a message that fits on a screen."""
    _, findings = parse(SourceFile("a.prec", text))
    assert len(findings) == 1
    assert len(findings[0].message) <= 201


@pytest.mark.parametrize("depth", [10, 40, 64])
def test_selectors_nest_to_a_limit(depth: int) -> None:
    """Groups and chains count together, so that no later step recurses deeper than the limit."""
    text = "(" * depth + "a" + " in b)" * depth + ": bf16"
    _, findings = parse(SourceFile("a.prec", text))
    assert [finding.code for finding in findings] == ([] if depth <= 32 else ["P012"])


@pytest.mark.parametrize(
    "line",
    ["a b\n", "(a\n", "a: bf16\n", "a.b.c, ", "{a,b}.", "((a) in b), ", "# precc: ignore[P104] "],
    ids=lambda line: line.strip(),
)
def test_work_grows_with_length_and_not_faster(line: str) -> None:
    """Eight times the text takes at most eight times the calls."""

    def work(count: int) -> int:
        source = SourceFile("a.prec", line * count)
        return calls(lambda: parse(source))

    assert work(4000) <= 8 * work(500)


@given(st.text())
def test_any_text_parses_or_is_reported(text: str) -> None:
    """Nothing is ever raised."""
    parse(SourceFile("a.prec", text))


@given(st.binary())
def test_any_bytes_are_read_or_reported(data: bytes) -> None:
    """Nothing is ever raised."""
    read = decode_source("a.prec", data)
    if isinstance(read, SourceFile):
        parse(read)
    else:
        assert read.code == "P012"


@given(scraps)
def test_scraps_of_the_language_parse_or_are_reported(text: str) -> None:
    """Each line is reported at most once as a syntax error, and the formatter copes too."""
    source = SourceFile("a.prec", text)
    _, findings = parse(source)
    lines = [f.span.line for f in findings if f.span and f.code == "P001" and "comma is missing" not in f.message]
    assert len(lines) == len(set(lines)) or "precc" in text
    assert "P020" not in [finding.code for finding in format_source(source)[1]]
