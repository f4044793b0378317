"""The cases of `tests/cases/decisions`: a policy, a model, and what must be found or decided.

Each file holds cases, one a heading. Under it: `model: NAME`, a fenced policy, and one line for each expectation:

    - P102 at 1                                  this code, on this line of the policy
    - no findings                                no error and no warning
    - model.layers.3.self_attn.q_proj: bf16      what is decided, as `precc explain` shows it
    - kv_cache: fp8
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from precc.diagnostics import Severity
from precc.graph.reading import read_model
from precc.pipeline import Compilation, decide_policy
from precc.source import SourceFile

FOLDER = Path(__file__).parent.parent / "cases" / "decisions"
CASE = re.compile(
    r"^## (?P<title>.+?)\n+model: (?P<model>\S+)\n+```prec\n(?P<policy>.*?)^```\n+(?P<expected>(?:- [^\n]+\n?)+)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Case:
    """One case of a file."""

    title: str
    model: str
    policy: str
    expected: tuple[str, ...]


def cases() -> list[Case]:
    """Every case of every file; a heading that is no whole case fails the collection."""
    found = []
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        here = [
            Case(m["title"], m["model"], m["policy"], tuple(re.findall(r"^- (.+)$", m["expected"], re.MULTILINE)))
            for m in CASE.finditer(text)
        ]
        assert len(here) == len(re.findall(r"^## ", text, re.MULTILINE)), f"{path.name}: a case is malformed"
        found.extend(here)
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.title)
def test_a_case_is_decided_as_it_says(case: Case) -> None:
    """Each expectation of the case holds."""
    done = decide_policy(SourceFile("case.prec", case.policy), read_model(case.model), ("te", "sglang", "converter"))
    for expectation in case.expected:
        check(done, expectation)


def check(done: Compilation, expectation: str) -> None:
    """Assert one line of a case."""
    if expectation == "no findings":
        assert not [f for f in done.findings if f.severity is not Severity.INFO]
    elif match := re.fullmatch(r"(P\d{3}) at (\d+)", expectation):
        found = {(f.code, f.span.line if f.span else 0) for f in done.findings}
        assert (match[1], int(match[2])) in found, found
    else:
        name, _, decision = expectation.partition(": ")
        assert done.binding is not None, done.findings
        contract = done.binding.contract
        found_decision = contract.kv_cache if name == "kv_cache" else str(contract[name].decision)
        assert found_decision == decision, name
