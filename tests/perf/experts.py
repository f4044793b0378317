"""What a compile costs as a model's experts grow from 256 to 25,600: the same."""

from __future__ import annotations

import json
from pathlib import Path

from rich.table import Table

from precc import load_contract
from tests.perf.clock import alternate
from tests.perf.start import POLICY, PRECC, ROOT

EXPERTS = (256, 2_560, 25_600)
FACTS = ROOT / "precc/graph/models/deepseek-v3.json"


def write_config(folder: Path, experts: int) -> Path:
    """This writes the `config.json` of a DeepSeek-V3 with so many routed experts a layer."""
    facts = {**json.loads(FACTS.read_text())["config"], "n_routed_experts": experts}
    path = folder / f"experts-{experts}" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(facts))
    return path


def measure(times: int, folder: Path) -> Table:
    """This times a compile for each number of experts and counts what it held."""
    configs = {experts: write_config(folder, experts) for experts in EXPERTS}
    commands = {
        f"{experts:,}": [PRECC, "compile", POLICY, "--model", str(path), "-o", str(path.parent / "out")]
        for experts, path in configs.items()
    }
    costs = alternate(commands, times)
    title = f"compile of DeepSeek-V3 by number of experts, median of {times}"
    table = Table("experts", "stored tensors", "objects", "wall s", "CPU s", title=title, title_justify="left")
    for path, (name, cost) in zip(configs.values(), costs.items(), strict=True):
        tensors = load_contract(path.parent / "out").tensors
        stored = sum(tensor.count for tensor in tensors)
        table.add_row(name, f"{stored:,}", f"{len(tensors):,}", f"{cost.wall:.3f}", f"{cost.cpu:.3f}")
    return table
