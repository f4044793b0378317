"""What a whole process costs, as the kernel counts it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from rich.progress import Progress


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one process: on the wall, and of CPU (user and system)."""

    wall: float
    cpu: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu)


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Installed packages are compiled; a checkout is after its first run, unless Python is told not to."""


def run(command: Sequence[str]) -> Cost:
    """This runs one command to its end and says what it cost. Raises RuntimeError if it fails."""
    start = perf_counter()
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    wall = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}:\n{said}")
    return Cost(wall, used.ru_utime + used.ru_stime)


def alternate(commands: Mapping[str, Sequence[str]], times: int) -> dict[str, Cost]:
    """The median cost of each command, after a first run, all in turn: a slow moment meets each."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for command in commands.values():
        run(command)
    with Progress(transient=True) as progress:
        for _ in progress.track(range(times), description=" · ".join(commands)):
            for name, command in commands.items():
                costs[name].append(run(command))
    return {name: middle(found) for name, found in costs.items()}


def middle(costs: Sequence[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(median(cost.wall for cost in costs), median(cost.cpu for cost in costs))
