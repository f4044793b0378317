"""DeepSeek-V3's graph from the headers of a checkpoint, as a multiple of parsing them and of the library."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from rich.table import Table
from safetensors import safe_open

from precc.graph import read_model
from tests.graph.checkpoint_files import entries, write_checkpoint
from tests.perf.clock import Cost, middle
from tests.perf.experts import FACTS

SHARDS = 163


def measure(times: int, folder: Path) -> Table:
    """This times each in turn on 163 sparse shards; a weight is never written, so none is there to be read."""
    graph = read_model("deepseek-v3")
    checkpoint = write_checkpoint(folder / "headers", json.loads(FACTS.read_text())["config"], entries(graph), SHARDS)
    if read_model(str(checkpoint)).stored_tensors != graph.stored_tensors:
        raise RuntimeError("the checkpoint that was written is not the model's")
    ways: Mapping[str, Callable[[Path], Any]] = {
        "json.loads of every header": parsed,
        "safetensors: names, dtypes and shapes": listed,
        "precc: the graph": lambda path: read_model(str(path)),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(times):
        for name, way in ways.items():
            costs[name].append(timed(way, checkpoint))
    return show({name: middle(found) for name, found in costs.items()}, graph.stored_tensors, times)


def parsed(folder: Path) -> list[Any]:
    """This reads and parses headers, and does nothing with them."""
    return [json.loads(header(file)) for file in sorted(folder.glob("*.safetensors"))]


def header(file: Path) -> bytes:
    """The JSON of one file."""
    with file.open("rb") as stream:
        return stream.read(int.from_bytes(stream.read(8), "little"))


def listed(folder: Path) -> list[Any]:
    """This asks the library for what the headers say."""
    found: list[Any] = []
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "np") as opened:
            for name in opened.keys():  # noqa: SIM118 (it is no dictionary)
                one = opened.get_slice(name)
                found.append((name, one.get_dtype(), one.get_shape()))
    return found


def timed(way: Callable[[Path], Any], folder: Path) -> Cost:
    """What one call costs."""
    wall, cpu = perf_counter(), process_time()
    way(folder)
    return Cost(perf_counter() - wall, process_time() - cpu)


def show(costs: Mapping[str, Cost], tensors: int, times: int) -> Table:
    """One row a way, as a multiple of the first."""
    title = f"headers of {tensors:,} tensors in {SHARDS} shards, median of {times}"
    table = Table("what", "wall s", "CPU s", "× CPU", title=title, title_justify="left")
    first = next(iter(costs.values()))
    for name, cost in costs.items():
        table.add_row(name, f"{cost.wall:.3f}", f"{cost.cpu:.3f}", f"{cost.cpu / first.cpu:.1f}")
    return table
