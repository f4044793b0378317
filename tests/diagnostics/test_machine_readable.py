"""Findings for editors, for scripts and for GitHub."""

from __future__ import annotations

import json

from precc.diagnostics import Edit, Fix, Label, concise, error, github, info, warning
from precc.diagnostics import json as json_renderer
from precc.source import SourceFile

TEXT = "default: bf16\nkv_bproj: bf16\n"
SOURCE = SourceFile("policies/my.prec", TEXT)
SPAN = SOURCE.span(14, 22)
FINDING = error(
    "P101",
    "no known model has `kv_bproj`",
    SPAN,
    help="did you mean `kv_b_proj`?",
    labels=(Label(SOURCE.span(0, 7), "the default"),),
    fix=Fix((Edit(SPAN, "kv_b_proj"),), safe=False),
).on_model("deepseek-v3")


def test_concise_is_one_line_that_editors_jump_from() -> None:
    """`file:line:column: CODE severity message [model]`."""
    assert concise.render([FINDING, warning("P702", "no place")]) == (
        "policies/my.prec:2:1: P101 error no known model has `kv_bproj` [deepseek-v3]\nP702 warning no place\n"
    )


def test_concise_keeps_a_finding_on_one_line() -> None:
    """A message or a path with a line break must not look like two findings."""
    finding = error("P001", "bad `\nP999 error`", SourceFile("a\nb.prec", "x").span(0, 1))
    assert concise.render([finding]).count("\n") == 1


def test_json_has_the_documented_keys_and_numbers_from_one() -> None:
    """The list shape of the command line's manual, key by key; ends are exclusive."""
    place = {"file": "policies/my.prec", "line": 2, "column": 1, "end_line": 2, "end_column": 9}
    assert json.loads(json_renderer.render([FINDING])) == [
        {
            "code": "P101",
            "severity": "error",
            "message": "no known model has `kv_bproj`",
            "model": "deepseek-v3",
            **place,
            "labels": [
                {
                    "message": "the default",
                    "file": "policies/my.prec",
                    "line": 1,
                    "column": 1,
                    "end_line": 1,
                    "end_column": 8,
                }
            ],
            "help": "did you mean `kv_b_proj`?",
            "url": "docs/diagnostics/P101.md",
            "fix": {"safe": False, "edits": [{**place, "replacement": "kv_b_proj"}]},
        }
    ]


def test_json_writes_null_where_there_is_nothing() -> None:
    """Every key is there, so that a script needs no `get`."""
    (shown,) = json.loads(json_renderer.render([info("P403", "left in BF16")]))
    assert list(shown) == list(json.loads(json_renderer.render([FINDING]))[0])
    assert [key for key, value in shown.items() if value is None] == [
        "model",
        "file",
        "line",
        "column",
        "end_line",
        "end_column",
        "help",
        "fix",
    ]


def test_json_columns_count_characters_not_bytes() -> None:
    """An editor that counts UTF-16 units has to convert; bytes nobody counts."""
    text = "# 精度 𝔽\nx: é bad\n"
    start = text.index("bad")
    (shown,) = json.loads(json_renderer.render([error("P002", "x", SourceFile("p", text).span(start, start + 3))]))
    assert (shown["line"], shown["column"], shown["end_column"]) == (2, 6, 9)


def test_json_of_an_edit_may_take_a_line_end_away() -> None:
    """The finding's own place ends with its line, the edit's begins the next one."""
    whole = SOURCE.span(0, 14)
    (shown,) = json.loads(json_renderer.render([warning("P104", "x", whole, fix=Fix((Edit(whole, ""),), safe=True))]))
    assert (shown["end_line"], shown["end_column"]) == (1, 14)
    (edit,) = shown["fix"]["edits"]
    assert (edit["end_line"], edit["end_column"]) == (2, 1)


def test_github_shows_each_severity_as_its_own_command() -> None:
    """Errors, warnings and notices, at their place."""
    findings = [error("P1", "e", SPAN), warning("P2", "w", SPAN), info("P3", "i", SPAN)]
    lines = github.render(findings).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning", "::notice"]
    assert lines[0] == (
        "::error title=precc P1,file=policies/my.prec,line=2,endLine=2,col=1,endColumn=9::policies/my.prec:2:1: P1 e"
    )


def test_github_escapes_what_would_end_a_property_or_a_message() -> None:
    """A path with a comma or a colon, a message with a percent sign, a line break before the help."""
    finding = error("P1", "100%\r", SourceFile("a,b:c%.prec", "x").span(0, 1), help="do\nthis")
    (line,) = github.render([finding]).split("\n")[:-1]
    properties, message = line.removeprefix("::error ").split("::", 1)
    assert "file=a%2Cb%3Ac%25.prec" in properties
    assert message == "a,b:c%25.prec:1:1: P1 100%25%0D%0Ahelp: do%0Athis"


def test_github_gives_columns_within_one_line_only() -> None:
    """The service refuses columns of a span over lines."""
    (line,) = github.render([error("P1", "x", SOURCE.span(0, 20))]).splitlines()
    assert "line=1,endLine=2::" in line


def test_nothing_found_is_an_empty_list_or_an_empty_text() -> None:
    """The clean case of each renderer."""
    assert json.loads(json_renderer.render([])) == []
    assert concise.render([]) == github.render([]) == ""
