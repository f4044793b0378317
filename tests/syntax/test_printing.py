"""The canonical form says the same as what the author wrote."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from syntax.strategies import policies, specs

from precc.resolve.fill import Draft
from precc.resolve.names import resolve_names
from precc.source import SourceFile
from precc.syntax import ast, format_source, parse
from precc.syntax.parser import parse_tree
from precc.syntax.printer import meaning
from precc.syntax.writing import file_text, spec_text

BLANKS = st.sampled_from([" ", "  ", "\t"])
COMMENTS = st.sampled_from(["", "", "# why", "  #why  ", "# precc: ignore[P104] so"])
OPENINGS = st.sampled_from(["(", "( ", "(\n", "( # inside\n\n  # and below\n"])


@given(policies())
def test_a_written_policy_reads_back_as_the_same_tree(file: ast.File) -> None:
    """Writing and parsing undo each other, for every policy that the language can state."""
    again, findings = parse(SourceFile("a.prec", file_text(file)))
    assert not findings
    assert again == file


@given(policies(), st.data())
def test_formatting_keeps_meaning_and_comments(file: ast.File, data: st.DataObject) -> None:
    """Whatever the spaces, breaks, blank lines and comments of the author; and once more changes nothing."""
    lines = []
    for line in file_text(file).splitlines():
        lines += data.draw(st.lists(st.sampled_from(["", "# own"]), max_size=2))
        spaced = line.replace(" ", data.draw(BLANKS)) if '"' not in line else line
        spaced = spaced.replace(",", " , ") if "{" not in spaced else spaced
        lines.append(spaced.replace("(", data.draw(OPENINGS)) + data.draw(COMMENTS))
    source = SourceFile("a.prec", "\n".join(lines))
    text, findings = format_source(source)
    assert not findings
    result = SourceFile("a.prec", text)
    assert meaning(parse(result)[0]) == meaning(parse(source)[0])
    assert comments(result) == comments(source)
    assert format_source(result) == (text, ())


def comments(source: SourceFile) -> list[str]:
    """The comments of a text, without the spaces behind them."""
    return [comment.text.rstrip() for comment in parse_tree(source).comments]


@given(specs, st.booleans())
def test_formatting_keeps_what_is_decided(spec: ast.Spec, amends: bool) -> None:
    """Not only the clauses: the decision itself, also where options stand before the format that they belong to."""
    before = "a: mxfp8\n" if amends else ""
    lets = "".join(
        f"let {clause.name} = group 64\n" for clause in spec.clauses if isinstance(clause, ast.ReferenceClause)
    )
    source = SourceFile("a.prec", f"{lets}{before}a :{spec_text(spec)}\n")
    text, findings = format_source(source)
    assert not findings
    assert decided(SourceFile("a.prec", text)) == decided(source)


def decided(source: SourceFile) -> object:
    """The decision about a tensor that every rule reaches."""
    policy, _ = resolve_names(parse(source)[0])
    draft = Draft()
    for rule in policy.rules:
        draft.apply(rule)
    return draft.decision()


def test_the_formatter_checks_itself_without_its_own_order() -> None:
    """Clauses are a set between the names of `let`s, and no clause crosses one."""

    def said(spec: str) -> object:
        return meaning(parse(SourceFile("a.prec", f"a: {spec}"))[0])

    assert said("group 64, weight int4, train bf16") == said("weight int4, train bf16, group 64")
    assert said("g, weight int4, group 64") == said("g, group 64, weight int4")
    assert said("weight int4, g") != said("g, weight int4")
    assert said("weight int4, g, h") != said("weight int4, h, g")
    assert said("weight int4, group 64") != said("weight int4, group 32")


def test_a_file_with_errors_is_left_as_it_is() -> None:
    """What could not be read is not rewritten."""
    text = "default:   bf16\ngate gate\n"
    result, findings = format_source(SourceFile("a.prec", text))
    assert result == text
    assert [finding.code for finding in findings] == ["P001"]


def test_line_ends_of_another_system_are_kept() -> None:
    """A file with CRLF keeps it."""
    text, _ = format_source(SourceFile("a.prec", "default:bf16\r\n\r\n\r\n# end\r\n"))
    assert text == "default: bf16\r\n\r\n# end\r\n"
