"""What `convert --help` says of memory holds: a limit of the system on private memory is kept."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from converter.conversions import compile_for
from graph.checkpoint_files import entries, header_of
from rollout.support import SMALL

from precc.graph import read_model
from precc_converter.verbs.convert import DESCRIPTION

pytestmark = pytest.mark.slow

TORCH = 500 * 10**6
A_PARAMETER = 3.2
"""Bytes, from 16-bit sources; with the figure above what the help says."""

EXPERTS: dict[str, Any] = {
    **SMALL["qwen3_moe"],
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "num_experts": 64,
    "num_hidden_layers": 3,
    "vocab_size": 40_000,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
}
WIDE: dict[str, Any] = {**SMALL["qwen3"], "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that does not outlive the test: gigabytes are in it."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def write(folder: Path, config: Mapping[str, Any]) -> int:
    """A checkpoint in one file, the same random weights over and over; the result is its size."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, size = header_of(entries(read_model(str(folder / "config.json"))))
    text = json.dumps(header).encode()
    block = (torch.randn(1 << 22) * 0.02).to(torch.bfloat16).view(torch.uint8).numpy()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for at in range(0, size, len(block)):
            file.write(block[: size - at])
    return size


def convert(folder: Path, limit: float) -> subprocess.CompletedProcess[str]:
    """A conversion by two workers, each with so many bytes of private memory."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "precc", "convert", "source", "out", "--contract", "compiled"]
    return subprocess.run(
        [*command, "--workers", "2", "--device", "cpu", "--max-shard-size", "500MB"],
        cwd=folder,
        env={**os.environ, **one_thread},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit))),
        capture_output=True,
        text=True,
    )


def test_two_gigabytes_are_converted_in_the_memory_of_one_group(folder: Path) -> None:
    """The largest group is gate and up of one expert, a thousandth of the checkpoint."""
    size = write(folder / "source", EXPERTS)
    assert size > 2 * 10**9
    compile_for(folder / "source", "nvfp4_rl", folder / "compiled")
    done = convert(folder, TORCH + A_PARAMETER * 2 * prod((768, 2048)))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((folder / "out").glob("*.safetensors"))) > 2


def test_a_large_group_takes_what_is_said_and_not_much_less(folder: Path) -> None:
    """Within the limit it is converted; without what is said of groups there is no memory, and what for is told."""
    write(folder / "source", WIDE)
    compile_for(folder / "source", "targets: converter\n@dense_mlp: nvfp4 per_token\n", folder / "compiled")
    short = convert(folder, TORCH)
    assert short.returncode == 1
    assert "there is no memory for `model.layers.0.mlp." in short.stderr
    done = convert(folder, TORCH + A_PARAMETER * 2 * prod((16384, 4096)))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_help_says_these_figures() -> None:
    """What the tests above hold."""
    assert f"{TORCH // 10**6} MB of torch" in DESCRIPTION
    assert f"{A_PARAMETER} bytes from 16-bit" in DESCRIPTION
