"""What reading a checkpoint costs: its headers and nothing else, and so many steps a tensor."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from counting import calls
from graph.checkpoint_files import Entry, entries, names_by_file, write_checkpoint
from graph.expansion import facts
from graph.stored_forms import WRITTEN, in_layout

from precc.graph import ModelGraph, read_model
from precc.graph.config import describe
from precc.graph.shards import INDEX

READ = """
import sys
from precc.graph import read_model
from pathlib import Path

def read():
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])

read_model(sys.argv[1])
before = read()
between = read()
read_model(sys.argv[1])
print(read() - between - (between - before))
"""
"""Reads a checkpoint twice and prints how many bytes the second time took, by the kernel's count."""


def checkpoint(folder: Path, experts: int, case: str | None = None) -> tuple[Path, int]:
    """A mixture with so many experts a layer, in 8 shards, and how many tensors it stores."""
    config = {**facts("qwen3-30b-a3b")[0], "num_hidden_layers": 4, "num_experts": experts}
    graph = describe(config, "m").graph("m")
    stored: dict[str, Entry] = entries(graph)
    if case is not None:
        stored = in_layout(graph, stored, WRITTEN[case])
    return write_checkpoint(folder, config, stored, shards=8), len(stored)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the kernel does not count here")
def test_only_headers_are_read(tmp_path: Path) -> None:
    """Byte by byte: of 8 shards with 5 GB of weights, their headers, `config.json` and the index."""
    folder, _ = checkpoint(tmp_path / "m", 128)
    index = {"weight_map": names_by_file(folder)}
    (folder / INDEX).write_text(json.dumps(index))
    done = subprocess.run([sys.executable, "-c", READ, str(folder)], capture_output=True, text=True, check=True)
    wanted = sum(8 + _header(file) for file in folder.glob("*.safetensors"))
    wanted += (folder / "config.json").stat().st_size + (folder / INDEX).stat().st_size
    assert int(done.stdout) == wanted


def _header(file: Path) -> int:
    with file.open("rb") as stream:
        return int.from_bytes(stream.read(8), "little")


@pytest.mark.parametrize("case", [None, "fp8 blocks", "nvfp4 with static inputs"])
def test_a_further_tensor_costs_a_few_calls(tmp_path: Path, case: str | None) -> None:
    """As many for the last of 24,000 as for the first."""
    counts, steps = [], []
    for experts in (128, 256, 512):
        folder, tensors = checkpoint(tmp_path / str(experts), experts, case)
        read_model(str(folder))
        counts.append(tensors)
        steps.append(calls(partial(read_model, str(folder))))
    first, second = ((steps[at + 1] - steps[at]) / (counts[at + 1] - counts[at]) for at in (0, 1))
    assert first == pytest.approx(second, rel=0.02)
    assert second < 6


def test_a_graph_has_no_more_tensors_than_ranges(tmp_path: Path) -> None:
    """128 or 512 experts of one form are one tensor."""
    graphs: list[ModelGraph] = []
    for experts in (128, 512):
        graphs.append(read_model(str(checkpoint(tmp_path / str(experts), experts, "nvfp4")[0])))
    assert len(graphs[0].tensors) == len(graphs[1].tensors)
