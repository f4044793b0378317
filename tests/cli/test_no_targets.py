"""In a checkout whose package is not installed there are no entry points: one clear error, and nothing written."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.commands import Run

SAID = "no target is installed; install precc with its targets: `pip install -e .` in a checkout"


@pytest.fixture(autouse=True)
def _uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No distribution registers anything."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: importlib.metadata.EntryPoints(()))


@pytest.mark.parametrize("text", ["experts.*: mxfp8\n", "targets: te\nexperts.*: mxfp8\n"])
@pytest.mark.parametrize(
    "words",
    [
        ["compile", "policy.prec", "--model", "qwen3-30b-a3b", "-o", "out"],
        ["compile", "policy.prec", "--model", "qwen3-30b-a3b", "--target", "te", "-o", "out"],
        ["plan", "policy.prec", "--model", "qwen3-30b-a3b"],
        ["lint", "policy.prec", "--model", "qwen3-30b-a3b"],
    ],
    ids=" ".join,
)
def test_a_verb_that_needs_a_target_says_how_to_have_one(
    words: list[str], text: str, run: Run, policy: Callable[..., str], project: Path
) -> None:
    """Whether the policy, the command line or nobody names one."""
    policy(text)
    status, out, error = run(*words)
    assert (status, out) == (2, "")
    assert SAID in error
    assert "internal error" not in error
    assert not (project / "out").exists()


def test_a_ready_policy_says_so_too(run: Run) -> None:
    """By its name alone."""
    status, _, error = run("compile", "nvfp4_rl", "--model", "qwen3-30b-a3b", "-o", "x")
    assert status == 2
    assert SAID in error


@pytest.mark.parametrize(
    "words", [["targets"], ["lint", "policy.prec"], ["fmt", "--check", "policy.prec"]], ids=" ".join
)
def test_what_needs_no_target_runs(words: list[str], run: Run, policy: Callable[..., str]) -> None:
    """The core alone reads, checks and formats policies."""
    policy("experts.*: mxfp8\n")
    status, _, error = run(*words)
    assert status == 0
    assert "error" not in error
