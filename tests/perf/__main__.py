"""`make bench`: every table, in one run. Nothing is asserted on a time; the machine decides those."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from tests.perf import convert, deepseek, experts, headers, largest, quantize, start


def main() -> None:
    """This runs the benchmarks, the quick ones first. `python -m tests.perf 5`: a fifth as often each."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    less = int(sys.argv[1]) if sys.argv[1:] else 1
    cores, load = os.cpu_count(), os.getloadavg()[0]
    console.print(f"Python {platform.python_version()}, {platform.machine()}, {cores} cores, load {load:.1f}\n")
    with TemporaryDirectory() as folder:
        console.print(start.measure(max(40 // less, 3)))
        console.print(largest.measure(max(9 // less, 1), Path(folder)))
        console.print(experts.measure(max(9 // less, 1), Path(folder)))
        console.print(headers.measure(max(9 // less, 1), Path(folder)))
        console.print(deepseek.measure(max(3 // less, 1), Path(folder)))
        console.print(quantize.measure(max(25 // less, 3)))
        console.print(convert.measure(max(3 // less, 1), Path(folder)))


if __name__ == "__main__":
    main()
