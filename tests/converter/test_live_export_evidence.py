"""The evidence of a step: one line for a session that exported everything, none for any other."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from converter.live import contract, weights
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from precc_converter import LiveExporter
from precc_converter.live import (
    MissingTensors,
    NotFiniteTensor,
    SessionFailed,
    fingerprint,
)


def test_a_complete_session_is_one_line_of_evidence(tmp_path: Path) -> None:
    """What was exported, under which contract, by which versions; the other side computes the same fingerprint."""
    made = contract("mixed", "deepseek_v3")
    exporter, log = LiveExporter(made), tmp_path / "evidence.jsonl"
    received: dict[int, dict[str, Tensor]] = {}
    for step in (1, 2):
        with exporter.session(step=step, evidence=log) as session:
            received[step] = dict(session.add(weights(made, seed=step)))
            version_shown = session.weight_version
    first, second = map(json.loads, log.read_text().splitlines())
    assert second == {
        "step": 2,
        "contract": made.digest,
        "weight_version": f"2:{made.digest}",
        "without": [],
        "tensors": len(received[2]),
        "bytes": sum(tensor.nbytes for tensor in received[2].values()),
        "sha256": fingerprint(received[2]),
        "engines": second["engines"],
    }
    assert version_shown == second["weight_version"]
    assert second["engines"]["torch"] == version("torch")
    assert first["sha256"] == fingerprint(received[1]) != second["sha256"]


@given(st.permutations(range(4)), st.integers(0, 3), st.sampled_from(["byte", "name", "dtype", "shape"]))
def test_a_fingerprint_is_of_names_dtypes_shapes_and_bytes(order: list[int], at: int, changed: str) -> None:
    """Not of their order."""
    tensors = {f"t{number}": torch.arange(8, dtype=torch.int32) + number for number in range(4)}
    shuffled = {f"t{number}": tensors[f"t{number}"] for number in order}
    assert fingerprint(shuffled) == fingerprint(tensors.items())
    name = f"t{at}"
    tensor = shuffled.pop(name)
    if changed == "byte":
        tensor = tensor ^ (1 << 31 if at else 1)
    new = {"byte": tensor, "name": tensor, "dtype": tensor.view(torch.float32), "shape": tensor.reshape(2, 4)}[changed]
    shuffled[name + "x" if changed == "name" else name] = new
    assert fingerprint(shuffled) != fingerprint(tensors)


def test_two_tensors_of_one_name_have_no_fingerprint() -> None:
    """A set of tensors has each name once."""
    with pytest.raises(ValueError, match="`a` came twice"):
        fingerprint([("a", torch.zeros(1)), ("a", torch.zeros(1))])


def test_a_fingerprint_needs_an_evidence_log() -> None:
    """Without one nothing is hashed."""
    session = LiveExporter(contract("mixed", "qwen3_moe")).session(step=0)
    with pytest.raises(SessionFailed, match="computes no fingerprint; give it `evidence`"):
        _ = session.fingerprint


@pytest.mark.parametrize("fault", ["missing", "raised", "not finite"])
def test_a_session_that_failed_leaves_no_line(tmp_path: Path, fault: str) -> None:
    """Nor does it touch the lines that are there."""
    made = contract("mixed", "qwen3_moe")
    log = tmp_path / "evidence.jsonl"
    log.write_text('{"step": 0}\n')
    tensors = dict(weights(made))
    if fault == "missing":
        del tensors["model.norm.weight"]
    if fault == "not finite":
        tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], float("nan"))

    def step() -> None:
        with LiveExporter(made).session(step=1, evidence=log) as session:
            list(session.add(tensors))
            if fault == "raised":
                raise ArithmeticError

    with pytest.raises((MissingTensors, ArithmeticError, NotFiniteTensor)):
        step()
    assert log.read_text() == '{"step": 0}\n'


def test_a_line_after_a_torn_one_stands_for_itself(tmp_path: Path) -> None:
    """A process that was killed while it wrote loses its own line only."""
    made = contract("mixed", "qwen3_moe")
    log = tmp_path / "evidence.jsonl"
    log.write_text('{"step": 0}\n{"step": 1, "contr')
    with LiveExporter(made).session(step=2, evidence=log) as session:
        list(session.add(weights(made)))
    *_, torn, last = log.read_text().splitlines()
    assert torn == '{"step": 1, "contr'
    assert json.loads(last)["step"] == 2


def test_a_log_that_cannot_be_written_stops_a_session_at_once(tmp_path: Path) -> None:
    """Before anything is exported."""
    session = LiveExporter(contract("mixed", "qwen3_moe")).session(step=0, evidence=tmp_path / "no" / "evidence.jsonl")
    with pytest.raises(FileNotFoundError), session:
        pytest.fail("it was entered")


def test_a_line_for_which_there_is_no_room_is_not_there(tmp_path: Path) -> None:
    """A full disk: what was written of it is taken back, and the lines before it stay."""
    log = tmp_path / "evidence.jsonl"
    log.write_text('{"step": 0}\n')
    code = (
        "import resource, signal, sys; from pathlib import Path; "
        "from precc_converter.live.evidence import EvidenceLog; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20)); "
        "EvidenceLog(Path(sys.argv[1])).append({'step': 1, 'contract': '0' * 64})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, text=True, check=False)
    assert "no room for a line of" in done.stderr
    assert log.read_text() == '{"step": 0}\n'
