"""`# precc: ignore[…]` silences what it names, on its line, and nothing else."""

from __future__ import annotations

from precc.graph.reading import read_model
from precc.pipeline import Settings, decide_policy
from precc.source import SourceFile

ALL = ("te", "sglang", "converter")


def codes(text: str, complete: bool = True) -> list[str]:
    """The codes of errors and warnings, in order."""
    model = read_model("qwen3-30b-a3b")
    done = decide_policy(SourceFile("p.prec", text), model, ALL, Settings(complete=complete))
    return [finding.code for finding in done.findings if finding.severity.value != "info"]


def test_an_ignore_silences_its_line_only() -> None:
    """The same finding two lines on stays."""
    text = "kv_b_proj: bf16  # precc: ignore[P102] for DeepSeek\nq_a_proj: bf16\n"
    assert codes(text) == ["P102"]


def test_an_ignore_of_an_extended_policy_holds() -> None:
    """The ready policy silences its own drift; extending it brings no warning."""
    assert codes('extends "int4_w4a16"\n') == []


def test_an_ignore_of_another_code_silences_nothing() -> None:
    """Codes are matched whole."""
    assert codes("kv_b_proj: bf16  # precc: ignore[P101]\n") == ["P102"]


def test_an_ignore_on_an_amendment_silences_what_the_amendment_causes() -> None:
    """The finding stands at the line that its author can edit."""
    text = 'extends "nvfp4_rl"\n@routed_experts: train bf16  # precc: ignore[P505] corrected\n'
    assert codes(text) == []
