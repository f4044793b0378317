"""`precc compile` of DeepSeek-V3 for every target, read back, and compressed-tensors deciding the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from precc import load_contract
from precc.contract import Contract
from tests.perf.clock import ENVIRONMENT, Cost, middle, run
from tests.perf.start import POLICY, PRECC

PEER = str(Path(__file__).with_name("peer.py"))
LABELS = {
    "apply": "compressed-tensors: apply_quantization_config, the call alone",
    "match": "compressed-tensors: match_named_modules, the call alone",
    "import": "compressed-tensors: its imports (torch, transformers)",
    "build": "compressed-tensors: the model on the meta device",
}


def measure(times: int, folder: Path) -> Table:
    """This times both in turn, and checks that they quantize the same tensors."""
    out = str(folder / "deepseek-v3")
    command = [PRECC, "compile", POLICY, "--model", "deepseek-v3", "-o", out]
    ours: list[Cost] = []
    theirs: list[dict[str, Cost]] = []
    report: dict[str, Any] = {}
    for _ in range(times):
        ours += [run(command) for _ in range(3)]
        report = json.loads(
            subprocess.run([sys.executable, PEER], env=ENVIRONMENT, check=True, stdout=subprocess.PIPE).stdout
        )
        theirs.append({part: Cost(*figures) for part, figures in report["seconds"].items()})
    contract = load_contract(out)
    compare(contract, report)
    return show(middle(ours), theirs, count(contract), report["linears"])


def count(contract: Contract) -> int:
    """Stored tensors that the contract decides."""
    return sum(tensor.count for tensor in contract.tensors)


def compare(contract: Contract, report: dict[str, Any]) -> None:
    """Both must have quantized the same weights, or the times say nothing. Raises RuntimeError."""
    wanted = {name for entry in contract.quantized() for name in entry.tensor.modules()}
    found = set(report["quantized"])
    if wanted != found:
        example = sorted(wanted ^ found)[0]
        raise RuntimeError(f"the decisions differ in {len(wanted ^ found)} tensors, {example} among them")


def show(ours: Cost, theirs: list[dict[str, Cost]], tensors: int, linears: int) -> Table:
    """One row a thing timed, as a multiple of the whole precc process."""
    title = f"compile of DeepSeek-V3: {tensors:,} tensors by precc, {linears:,} linears by the peer"
    table = Table("what", "wall s", "CPU s", "× wall", "× CPU", title=title, title_justify="left")
    table.add_row(*row("precc compile, all targets, read back: the whole process", ours, ours))
    for part, label in LABELS.items():
        table.add_row(*row(label, middle([run[part] for run in theirs]), ours))
    whole = middle([run["import"] + run["build"] + run["apply"] for run in theirs])
    table.add_row(*row("compressed-tensors: imports, model and call", whole, ours))
    return table


def row(label: str, cost: Cost, ours: Cost) -> tuple[str, ...]:
    """A cost in figures and as a multiple of ours."""
    return (
        label,
        f"{cost.wall:.3f}",
        f"{cost.cpu:.3f}",
        f"{cost.wall / ours.wall:.1f}",
        f"{cost.cpu / ours.cpu:.1f}",
    )
