"""`precc compile` of the largest models for every target, as a multiple of a Python that does nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.table import Table

from precc import load_contract
from tests.perf.clock import alternate
from tests.perf.start import POLICY, PRECC

MODELS = ("deepseek-v3", "kimi-k2", "qwen3.5-397b-a17b", "glm-5")
BARE = "python -c pass"


def measure(times: int, folder: Path) -> Table:
    """This times whole processes, reading back included, and counts what each compile decided."""
    outputs = {model: folder / "largest" / model for model in MODELS}
    commands = {model: [PRECC, "compile", POLICY, "--model", model, "-o", str(out)] for model, out in outputs.items()}
    costs = alternate({BARE: [sys.executable, "-c", "pass"], **commands}, times)
    title = f"compile of the largest models, all targets, median of {times}"
    table = Table("model", "stored tensors", "objects", "wall s", "CPU s", "× CPU", title=title, title_justify="left")
    for name, cost in costs.items():
        tensors = load_contract(outputs[name]).tensors if name in outputs else ()
        counts = (f"{sum(tensor.count for tensor in tensors):,}", f"{len(tensors):,}") if tensors else ("", "")
        table.add_row(name, *counts, f"{cost.wall:.3f}", f"{cost.cpu:.3f}", f"{cost.cpu / costs[BARE].cpu:.1f}")
    return table
