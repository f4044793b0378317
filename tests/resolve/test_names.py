"""Names are replaced by what they stand for: each once, without recursion, and what is wrong is reported once."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting import calls

from precc.diagnostics import Diagnostic
from precc.resolve.names import resolve_names
from precc.resolve.policy import Policy
from precc.source import SourceFile
from precc.syntax import parse, read_source
from precc.syntax.writing import clause_text

DOUBLING = "let a0 = nvfp4\n" + "".join(f"let a{n} = a{n - 1}, a{n - 1}\n" for n in range(1, 200))
CROSSING = "let a0 = nvfp4\nlet b0 = nvfp4\n" + "".join(
    f"let a{n} = a{n - 1}, b{n - 1}\nlet b{n} = b{n - 1}, a{n - 1}\n" for n in range(1, 100)
)
EMPTY = CROSSING.replace("nvfp4", "group x")


def resolve(text: str) -> tuple[Policy, tuple[Diagnostic, ...]]:
    """The policy of a text, and what its names are reported for."""
    return resolve_names(parse(SourceFile("a.prec", text))[0])


def clauses(text: str) -> list[list[str]]:
    """The clauses of every rule, names replaced."""
    return [[clause_text(clause) for clause in rule.clauses] for rule in resolve(text)[0].rules]


def codes(text: str) -> list[tuple[int, str]]:
    """The line and code of every finding."""
    return [(finding.span.line if finding.span else 0, finding.code) for finding in resolve(text)[1]]


# --- let ---


def test_a_name_stands_for_its_clauses() -> None:
    """Also through another name, and only below its own line."""
    assert clauses("let a = nvfp4\nlet b = a, hadamard\nx: b, backward native\n") == [
        ["nvfp4", "hadamard", "backward native"]
    ]
    assert codes("x: a\nlet a = nvfp4\nlet b = b\n") == [(1, "P002"), (3, "P002")]


def test_a_long_chain_of_names_is_resolved() -> None:
    """Two thousand lines deep, and no deeper in calls."""
    chain = "let a0 = nvfp4\n" + "".join(f"let a{n} = a{n - 1}\n" for n in range(1, 2001))
    assert clauses(f"{chain}x: a2000\n") == [["nvfp4"]]


@pytest.mark.parametrize("text", [DOUBLING, CROSSING, EMPTY], ids=["doubling", "crossing", "empty"])
def test_names_that_multiply_cost_no_more_than_their_lines(text: str) -> None:
    """Each `let` is expanded once, and stands for each thing once."""
    file = parse(SourceFile("a.prec", text))[0]
    few = parse(SourceFile("a.prec", "".join(text.splitlines(keepends=True)[:20])))[0]
    assert calls(lambda: resolve_names(file)) <= 12 * calls(lambda: resolve_names(few))


def test_a_contradiction_is_reported_at_the_let_alone() -> None:
    """The rules that use it say nothing wrong."""
    text = "let a = nvfp4\nlet b = weight mxfp8, a\nx: b\ny: b, hadamard\n"
    policy, (finding,) = resolve(text)
    assert (finding.code, finding.span and finding.span.line) == ("P007", 2)
    assert [label.span.text for label in finding.labels] == ["weight mxfp8", "nvfp4"]
    assert len(policy.rules) == 2


@pytest.mark.parametrize(
    "spec, what",
    [
        ("nvfp4, other", "the weight's format"),
        ("input fp8, other", "the input's format"),
        ("late, backward native", "the backward mode"),
        ("small, group 64", "the weight's `group`"),
        ("weight int4 group 64, small", "the weight's `group`"),
        ("hadamard, late", "`hadamard`"),
    ],
)
def test_a_name_and_a_clause_contradict_each_other(spec: str, what: str) -> None:
    """In every part of a spec, in either order."""
    _, (finding,) = resolve(
        f"let other = mxfp8\nlet late = backward dequantized, hadamard\nlet small = group 32\nx: {spec}\n"
    )
    assert (finding.code, finding.message) == ("P007", f"this spec decides {what} twice")


@pytest.mark.parametrize("spec", ["nvfp4, mxfp8", "a, a"])
def test_what_one_file_shows_by_itself_is_not_reported_again(spec: str) -> None:
    """The syntax has its finding already."""
    text = f"let a = nvfp4\nx: {spec}\n"
    assert [finding.code for finding in parse(SourceFile("a.prec", text))[1]] == ["P007"]
    assert codes(text) == []


# --- unknown words ---


@pytest.mark.parametrize(
    "text, fixed",
    [("default: MXFP8", "mxfp8"), ("let Late = bf16\ndefault: LATE", "Late"), ("x: nvfp4, Hadamard", "hadamard")],
)
def test_a_word_in_another_case_has_a_safe_fix(text: str, fixed: str) -> None:
    """Formats, names and clauses of one word."""
    _, (finding,) = resolve(text)
    assert finding.fix
    assert (finding.fix.safe, finding.fix.edits[0].replacement) == (True, fixed)
    assert finding.help
    assert finding.help.startswith(f"did you mean `{fixed}`?")


@pytest.mark.parametrize("text", ["default: mxfp88", "let late = bf16\nlet LATE = bf16\ndefault: Late"])
def test_a_word_that_may_mean_another_thing_has_no_safe_fix(text: str) -> None:
    """Another spelling, or two names to choose from."""
    _, (finding,) = resolve(text)
    assert finding.fix
    assert not finding.fix.safe


def test_a_finding_stays_short_whatever_the_file_holds() -> None:
    """Neither the word nor the list of names may fill the screen."""
    _, (finding,) = resolve("".join(f"let name{n} = bf16\n" for n in range(1000)) + f"x: {'q' * 60_000}\n")
    assert len(finding.message) < 200
    assert len(finding.help or "") < 500


# --- extends ---


def write(folder: Path, **files: str) -> SourceFile:
    """Files of a folder; the first one is read."""
    for name, text in files.items():
        (folder / f"{name}.prec").write_text(text)
    return read(folder / f"{next(iter(files))}.prec")


def read(path: Path) -> SourceFile:
    """A file that is there."""
    source = read_source(path)
    assert isinstance(source, SourceFile)
    return source


def write_chain(folder: Path, length: int) -> SourceFile:
    """So many files, each extended by the one before."""
    bodies = [f'extends "p{n + 1}.prec"\nx{n}: bf16\n' for n in range(length - 1)]
    return write(folder, **{f"p{n}": text for n, text in enumerate([*bodies, "x: bf16\n"])})


def test_files_extend_each_other_to_a_limit(tmp_path: Path) -> None:
    """Rules come from the far end first; all but the file's own are inherited."""
    policy, findings = resolve_names(parse(write_chain(tmp_path, 32))[0])
    assert not findings
    assert [rule.inherited for rule in policy.rules] == [True] * 31 + [False]
    assert policy.rules[0].span.text == "x: bf16"
    assert (policy.name, policy.base) == ("p0", "p1")


@pytest.mark.parametrize("length", [33, 1000])
def test_a_longer_chain_is_one_finding(tmp_path: Path, length: int) -> None:
    """At the line that is one too many, with the line of the policy that was asked for."""
    _, (finding,) = resolve_names(parse(write_chain(tmp_path, length))[0])
    assert finding.code == "P012"
    assert finding.span
    assert finding.span.text == 'extends "p32.prec"'
    assert [label.span.text for label in finding.labels] == ['extends "p31.prec"', 'extends "p1.prec"']


@pytest.mark.parametrize("bad, code", [("gate gate\n", "P001"), ("default: nvfp5\n", "P002"), ("", "P014")])
def test_a_finding_in_an_extended_file_shows_who_extends_it(tmp_path: Path, bad: str, code: str) -> None:
    """Of its syntax, its names and what it extends itself; each link of the chain that the author may not know."""
    last = bad or 'extends "nowhere.prec"\n'
    source = write(tmp_path, mine='policy "mine"\nextends "middle.prec"\n', middle='extends "bad.prec"\n', bad=last)
    _, (finding,) = resolve_names(parse(source)[0])
    assert finding.code == code
    assert finding.span
    assert Path(finding.span.source.path).name == "bad.prec"
    assert [(label.span.text, label.message) for label in finding.labels] == [
        ('extends "bad.prec"', "extended here"),
        ('extends "middle.prec"', "extended here"),
    ]


def test_a_finding_in_the_file_itself_has_no_such_label(tmp_path: Path) -> None:
    """Nobody extends it."""
    _, (finding,) = resolve_names(parse(write(tmp_path, mine='extends "base.prec"\nx: nvfp5\n', base=""))[0])
    assert finding.labels == ()
