"""What the author wrote arrives in the tree, with nothing added."""

from __future__ import annotations

from fractions import Fraction

import pytest

from precc.source import SourceFile
from precc.syntax import ast, parse

ALL_LAYERS = ast.Slice(None, None)


def statements(text: str) -> tuple[ast.Statement, ...]:
    """The statements of a text that has no findings."""
    file, findings = parse(SourceFile("a.prec", text))
    assert not findings
    return file.statements


def selector(text: str) -> ast.Selector:
    """The only selector of a rule."""
    (rule,) = statements(f"{text}: bf16\n")
    assert isinstance(rule, ast.Rule)
    (only,) = rule.selectors
    return only


def clauses(text: str) -> tuple[ast.Clause, ...]:
    """The clauses of a spec."""
    (default,) = statements(f"default: {text}\n")
    assert isinstance(default, ast.Default)
    return default.spec.clauses


def test_in_binds_tighter_than_a_comma() -> None:
    """`A, B in C` is `A, (B in C)`."""
    (rule,) = statements("a, b in c: bf16\n")
    assert isinstance(rule, ast.Rule)
    first, second = rule.selectors
    assert isinstance(first, ast.PathSelector)
    assert isinstance(second, ast.CombinedSelector)


def test_in_and_except_chain_from_left_to_right() -> None:
    """`A in B except C` is `(A in B) except C`."""
    chain = selector("a in b except c")
    assert isinstance(chain, ast.CombinedSelector)
    assert chain.operator == "except"
    assert isinstance(chain.left, ast.CombinedSelector)
    assert chain.left.operator == "in"
    assert chain.span.text == "a in b except c"


def test_braces_are_expanded_into_alternatives() -> None:
    """Also where several stand in one component, and where one holds a star."""
    path = selector("{q,k*}_{a,b}")
    assert isinstance(path, ast.PathSelector)
    (name,) = path.components
    assert isinstance(name, ast.Name)
    assert name.alternatives == ("q_a", "q_b", "k*_a", "k*_b")
    assert not name.is_literal


@pytest.mark.parametrize("text", ["a?", "@mla?", "(a, b)?"])
def test_a_question_mark_makes_a_selector_optional(text: str) -> None:
    """It stands behind a path, a role or a group."""
    assert getattr(selector(text), "optional", False)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("[0]", ast.Indices((0,))),
        ("[-1]", ast.Indices((-1,))),
        ("[3, 7, 9]", ast.Indices((3, 7, 9))),
        ("[:]", ALL_LAYERS),
        ("[:2]", ast.Slice(None, ast.Bound(Fraction(2), False, False))),
        ("[-8:]", ast.Slice(ast.Bound(Fraction(8), False, True), None)),
        ("[-0:]", ast.Slice(ast.Bound(Fraction(0), False, False), None)),
        ("[-12.5%:]", ast.Slice(ast.Bound(Fraction(25, 2), True, True), None)),
        ("[-0%:]", ast.Slice(ast.Bound(Fraction(0), True, True), None)),
    ],
)
def test_brackets_hold_numbers_or_a_slice(text: str, expected: ast.Indices | ast.Slice) -> None:
    """Shares are exact; minus zero per cent is not zero per cent, minus zero is zero as in Python."""
    path = selector(f"layers{text}")
    assert isinstance(path, ast.PathSelector)
    (layers,) = path.components
    assert isinstance(layers, ast.Layers)
    assert layers.which == expected


def test_an_operand_keeps_its_own_options() -> None:
    """Options directly behind an operand belong to it; the other operand is not filled in."""
    (clause,) = clauses("weight int4 group 32")
    assert isinstance(clause, ast.OperandClause)
    assert (clause.operand, clause.format, clause.options) == ("weight", "int4", ast.Options(group=32))


def test_four_over_six_keeps_what_was_written() -> None:
    """Neither its error nor its maximum is filled in."""
    assert [
        clause.options.four_over_six for clause in clauses("four_over_six") if isinstance(clause, ast.OptionClause)
    ] == [ast.FourOverSix()]
    (clause,) = clauses("nvfp4 per_token four_over_six mse max 448")
    assert isinstance(clause, ast.OperandClause)
    assert clause.options == ast.Options(scope="per_token", four_over_six=ast.FourOverSix("mse", 448))


def test_parentheses_around_a_spec_leave_no_trace() -> None:
    """They are there to break a line."""
    assert clauses("(nvfp4,\n  hadamard)") == clauses("nvfp4, hadamard")


def test_a_size_is_counted_in_bytes() -> None:
    """`GiB` is binary, `GB` is not."""
    sizes = [
        s.condition for s in statements("expect size <= 1.5 GiB\nexpect size <= 2GB\n") if isinstance(s, ast.Expect)
    ]
    assert [getattr(size, "bound", None) for size in sizes] == [3 << 29, 2 * 10**9]


def test_an_ignore_comment_knows_its_line_and_codes() -> None:
    """The reason is free text."""
    file, _ = parse(SourceFile("a.prec", "default: bf16\n@mla: bf16  # precc: ignore[P104, P106] on purpose\n"))
    assert [(ignore.line, ignore.codes) for ignore in file.ignores] == [(2, ("P104", "P106"))]


def test_a_comment_may_hold_several_ignores() -> None:
    """Each has its own place; codes are in capitals however they were written."""
    text = "@mla: bf16  # PRECC:ignore[p104] why # precc: ignore [P105, P105, p106] see #12\n"
    file, findings = parse(SourceFile("a.prec", text))
    assert not findings
    assert [(ignore.line, ignore.codes, ignore.span.text.strip()) for ignore in file.ignores] == [
        (1, ("P104",), "# PRECC:ignore[p104] why"),
        (1, ("P105", "P106"), "# precc: ignore [P105, P105, p106] see #12"),
    ]


def test_a_bad_clause_leaves_the_good_ones() -> None:
    """So that later steps find what they can."""
    file, findings = parse(SourceFile("a.prec", "let x = weight nvfp5, hadamard\n"))
    assert [finding.code for finding in findings] == ["P002"]
    (let,) = file.statements
    assert isinstance(let, ast.Let)
    assert let.spec.clauses == (ast.SwitchClause("hadamard", span=let.span),)


def test_two_conflicting_places_are_both_shown() -> None:
    """The finding stands at the second, its label at the first."""
    _, (finding,) = parse(SourceFile("a.prec", "default: bf16\ndefault: mxfp8\n"))
    assert finding.span
    assert finding.span.line == 2
    assert [label.span.line for label in finding.labels] == [1]


@pytest.mark.parametrize("text", ["\ufeffdefault: bf16", "default: bf16\r\n", "default: bf16\n", "default: bf16"])
def test_the_ends_of_lines_and_a_byte_order_mark_do_not_matter(text: str) -> None:
    """Files come from every editor."""
    assert statements(text) == statements("default: bf16\n")
