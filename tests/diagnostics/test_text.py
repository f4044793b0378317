"""Findings as people see them."""

from __future__ import annotations

from textwrap import dedent

from precc.diagnostics import Diagnostic, Label, Severity, error, info, warning
from precc.diagnostics.text import render, summary
from precc.source import SourceFile, Span


def source(text: str, path: str = "policy.prec") -> SourceFile:
    """A policy file of this text."""
    return SourceFile(path, text)


def span(text: str, part: str, path: str = "policy.prec") -> Span:
    """The span of a part of a text."""
    start = text.index(part)
    return source(text, path).span(start, start + len(part))


def shown(finding: Diagnostic, width: int = 110) -> str:
    """One finding as text."""
    return render([finding], width=width)


def picture(text: str) -> str:
    """What a test expects, without its indentation."""
    return dedent(text).lstrip("\n") + "\n"


def test_a_finding_shows_its_line_a_caret_a_help_line_and_its_model() -> None:
    """The whole of the ordinary case, as `lint` prints it."""
    text = "# experts\nkv_bproj: bf16\n"
    finding = error("P101", "no known model has `kv_bproj`", span(text, "kv_bproj"), help="did you mean `kv_b_proj`?")
    assert shown(finding.on_model("deepseek-v3")) == picture("""
        error[P101]: no known model has `kv_bproj`
         --> policy.prec:2:1
          |
        2 | kv_bproj: bf16
          | ^^^^^^^^
          = help: did you mean `kv_b_proj`?
          = model: deepseek-v3
        """)


def test_a_label_is_pictured_with_its_message_in_the_order_of_lines() -> None:
    """Two places conflict: both are shown, lines between them left out."""
    text = "default: bf16\n# one\n# two\ndefault: mxfp8\n"
    second = source(text).span(text.rindex("default"), text.rindex("default") + 7)
    finding = error("P006", "`default` stands twice", second, labels=(Label(span(text, "default"), "the first one"),))
    assert shown(finding) == picture("""
        error[P006]: `default` stands twice
         --> policy.prec:4:1
          |
        1 | default: bf16
          | ------- the first one
        ...
        4 | default: mxfp8
          | ^^^^^^^
        """)


def test_a_label_in_another_file_is_pictured_under_that_files_name() -> None:
    """A rule can conflict with one of the policy that it extends."""
    labels = (Label(span("a: bf16\n", "bf16", "base.prec"), "kept high here"),)
    finding = warning("P106", "undone", span("b: nvfp4\n", "nvfp4"), labels=labels)
    assert shown(finding) == picture("""
        warning[P106]: undone
         --> policy.prec:1:4
          |
        1 | b: nvfp4
          |    ^^^^^
         ::: base.prec:1:4
          |
        1 | a: bf16
          |    ---- kept high here
        """)


def test_a_span_over_lines_underlines_each_of_them() -> None:
    """A list in parentheses may be broken; indentation is not underlined."""
    text = "(q_proj,\n    k_proj): bf16\n"
    assert shown(error("P001", "x", span(text, "(q_proj,\n    k_proj)"))) == picture("""
        error[P001]: x
         --> policy.prec:1:1
          |
        1 | (q_proj,
          | ^^^^^^^^
        2 |     k_proj): bf16
          |     ^^^^^^^
        """)


def test_a_span_over_many_lines_shows_the_first_and_the_last() -> None:
    """A long list must not push the message off the screen."""
    text = "(" + ",\n".join(f"a{number}" for number in range(20)) + "): bf16"
    drawn = shown(error("P001", "x", source(text).span(0, len(text) - 6)))
    numbers = [line[:2].strip() for line in drawn.splitlines() if " | " in line and "^" not in line]
    assert numbers == [*"1234", "20"]
    assert "..." in drawn.splitlines()


def test_a_tab_reaches_to_the_next_multiple_of_four() -> None:
    """Carets stand under what they are about whatever the terminal makes of tabs."""
    text = "a\tb:\tbad"
    assert shown(error("P002", "x", span(text, "bad"))) == picture("""
        error[P002]: x
         --> policy.prec:1:6
          |
        1 | a   b:  bad
          |         ^^^
        """)


def test_wide_characters_take_two_cells_and_combining_ones_none() -> None:
    """Comments are written in any script."""
    text = "# 精度é́ bad"
    line, carets = shown(error("P001", "x", span(text, "bad"))).splitlines()[3:5]
    assert line == "1 | # 精度é́ bad"
    assert carets == "  | " + " " * (2 + 4 + 1 + 1) + "^^^"


def test_a_long_line_is_clipped_around_the_caret() -> None:
    """The caret is in sight, and both cuts are marked."""
    text = f"{'a, ' * 300}bad{', b' * 300}: bf16"
    drawn = shown(error("P001", "x", span(text, "bad")), width=60).splitlines()
    assert len(drawn[3]) <= 64
    assert drawn[3].startswith("1 | …")
    assert drawn[3].endswith("…")
    at = drawn[4].index("^^^")
    assert drawn[3][at : at + 3] == "bad"


def test_a_clipped_line_is_shown_again_for_a_label_far_away() -> None:
    """Each mark stands under its own part of the line."""
    text = f"bad{', a' * 300}worse: bf16"
    finding = error("P001", "x", span(text, "bad"), labels=(Label(span(text, "worse"), "here"),))
    drawn = shown(finding, width=60).splitlines()
    carets, dashes = drawn[4].index("^^^"), drawn[6].index("-----")
    assert drawn[3][carets : carets + 3] == "bad"
    assert drawn[5][dashes : dashes + 5] == "worse"
    assert drawn[6].endswith(" here")


def test_an_empty_span_has_one_caret() -> None:
    """What is missing is missing somewhere: here behind the last character."""
    text = "default: "
    assert shown(error("P001", "x", source(text).span(9, 9))).splitlines()[-2] == "  |          ^"


def test_a_file_that_cannot_be_read_has_no_picture() -> None:
    """There is a path and no text."""
    finding = error("P012", "cannot read this file: it is binary", source("").span(0, 0))
    assert shown(finding) == "error[P012]: cannot read this file: it is binary\n --> policy.prec:1:1\n\n"


def test_a_policy_cannot_steer_the_terminal() -> None:
    """Escape sequences and bidirectional overrides in a policy, a path or a message are shown, not sent."""
    text = "\x1b[31mred\u202e: bad\x07"
    finding = error("P001", "unknown \x1b[2J", span(text, "bad", "a\x1b[0m.prec"), help="try\x07")
    drawn = shown(finding)
    assert not {"\x1b", "\u202e", "\x07"} & set(drawn)
    assert "␛[31mred" in drawn


def test_colors_are_written_only_when_asked_for() -> None:
    """The same finding, painted; without the paint it is the same text."""
    import re

    text = "kv: bad\n"
    finding = warning("P102", "x", span(text, "bad"), labels=(Label(span(text, "kv"), "y"),), help="z")
    painted = render([finding], color=True)
    assert "\x1b[1;33mwarning[P102]\x1b[0m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == render([finding])
    assert "\x1b" not in render([finding])


def test_the_summary_counts_severities_and_files() -> None:
    """The last line of a lint."""
    one, two = span("bad\n", "bad", "a.prec"), span("bad\n", "bad", "b.prec")
    assert (
        summary([error("P1", "", one), error("P1", "", one), warning("P2", "", one)]) == "2 errors, 1 warning in 1 file"
    )
    assert summary([error("P1", "", one), info("P2", "", two)]) == "1 error, 1 info in 2 files"
    assert summary([Diagnostic("P5", Severity.ERROR, "no place")]) == "1 error"
    assert summary([]) == "no findings"
