"""The canonical form says the same as what the author wrote."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from syntax.strategies import policies

from precc.source import SourceFile
from precc.syntax import ast, format_source, parse
from precc.syntax.parser import parse_tree
from precc.syntax.printer import in_canonical_order
from precc.syntax.writing import file_text

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
    assert in_canonical_order(parse(result)[0]) == in_canonical_order(parse(source)[0])
    assert comments(result) == comments(source)
    assert format_source(result) == (text, ())


def comments(source: SourceFile) -> list[str]:
    """The comments of a text, without the spaces behind them."""
    return [comment.text.rstrip() for comment in parse_tree(source).comments]


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
