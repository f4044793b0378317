"""`precc lint` of one policy, as a multiple of a Python that does nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.table import Table

from tests.perf.clock import alternate

ROOT = Path(__file__).parents[2]
POLICY = str(ROOT / "policies/nvfp4_rl.prec")
PRECC = str(Path(sys.executable).with_name("precc"))

WITHOUT_SITE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from precc.cli import main; sys.exit(main())"

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "precc lint": [PRECC, "lint", POLICY],
    "python -S -E -c pass": [sys.executable, "-S", "-E", "-c", "pass"],
    "precc lint under -S -E": [sys.executable, "-S", "-E", "-c", WITHOUT_SITE, "lint", POLICY],
}
BARE = {"precc lint": "python -c pass", "precc lint under -S -E": "python -S -E -c pass"}


def measure(times: int) -> Table:
    """This times a lint without a model against a bare start, with and without `site`."""
    table = Table("command", "wall s", "CPU s", "CPU ratio", title=f"lint, median of {times}", title_justify="left")
    costs = alternate(COMMANDS, times)
    for name, cost in costs.items():
        ratio = f"{cost.cpu / costs[BARE[name]].cpu:.1f}" if name in BARE else ""
        table.add_row(name, f"{cost.wall:.4f}", f"{cost.cpu:.4f}", ratio)
    return table
