"""What a finding proposes exists: no list of sizes or of targets that is empty."""

from __future__ import annotations

from argparse import Namespace

import pytest

from precc import pipeline
from precc.backend import find_backend
from precc.cli.errors import UsageError
from precc.cli.subjects import Targets
from precc.graph import read_model
from precc.source import SourceFile


def helps(policy: str, model: str) -> set[str]:
    """What is proposed for weights that a layout of ranks does not leave whole blocks of."""
    backends = [find_backend(name) for name in ("te", "sglang")]
    found = pipeline.compile_policy(SourceFile("p.prec", policy), read_model(model), backends).findings
    return {finding.help or "" for finding in found if finding.code == "P302"}


def test_no_sizes_are_listed_where_none_works() -> None:
    """64 rows are no block of 128 on one rank either, and other expert parallelism does nothing about attention."""
    found = helps("default: fp8_block\ntrain: gpu=h200\nrollout: gpu=h200 tp=4 ep=4\n", "qwen3-next-80b-a3b")
    assert "no size works for tp: keep them in `bf16`; or a format with smaller blocks" in found
    assert not any("tp: ;" in help for help in found)


def test_sizes_are_listed_where_some_work() -> None:
    """And more expert parallelism where it would leave experts whole."""
    (found,) = helps("default: fp8_block\ntrain: gpu=b200\nrollout: gpu=b200 tp=8\n", "qwen3-30b-a3b")
    assert found == (
        "sizes that work for tp / ep: 1 or 2; or a format with smaller blocks, or more expert parallelism for experts"
    )


def test_a_target_without_any_installed_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core may be installed alone."""
    monkeypatch.setattr("precc.backend.available", dict)
    with pytest.raises(UsageError, match="no target is installed; install precc"):
        Targets(Namespace(targets=["te"], target_defaults=None))
