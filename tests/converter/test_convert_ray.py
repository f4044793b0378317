"""Conversions on a real Ray cluster: several worker processes on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from converter.checkpoints import content
from converter.conversions import Case, case
from converter.on_ray import WORKERS
from rollout.support import SMALL

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
SHARD = 500_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A small mixture of experts, its routed experts in NVFP4."""
    return case(tmp_path_factory.mktemp("made"), SMALL["qwen3_moe"], "nvfp4_rl", shards=3)


def test_a_cluster_that_loses_a_worker_writes_the_same_files(made: Case, tmp_path: Path) -> None:
    """The lost piece is given to another worker; several processes have taken part, one of them killed at its work."""
    out, mark = tmp_path / "out", tmp_path / "mark"
    arguments = [str(made.source), str(out), str(made.compiled), str(SHARD), str(mark)]
    done = subprocess.run(
        [sys.executable, "-m", "converter.on_ray", *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert mark.exists()
    assert len(list(tmp_path.glob("mark.workers/*"))) >= WORKERS
    assert content(out) == content(made.convert(tmp_path / "right", max_shard_size=SHARD))


def test_the_verb_starts_a_cluster_where_there_is_none(made: Case, tmp_path: Path) -> None:
    """`--ray` alone is enough on one machine; what is wrong is found as anywhere."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "precc", "convert", str(made.source), str(out), "--contract", str(made.compiled)]
    done = subprocess.run([*command, "--device", "cpu", "--ray"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert content(out) == content(made.convert(tmp_path / "right"))


def test_a_cluster_that_is_not_there_is_a_finding(made: Case, tmp_path: Path) -> None:
    """The address is named, and the folder left as it was."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "precc", "convert", str(made.source), str(out), "--contract", str(made.compiled)]
    done = subprocess.run([*command, "--ray", "127.0.0.1:1"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "P607" in done.stderr
    assert "127.0.0.1:1" in done.stderr
    assert not out.exists()
