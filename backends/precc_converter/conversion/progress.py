"""How far a conversion is, as one line that is written over itself at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO

from precc_converter.conversion.layout import Shard
from precc_converter.conversion.piece import Done

EVERY = 0.2
"""Seconds between two lines."""


@dataclass
class Progress:
    """Tensors, bytes, rate and time left, told after every piece; silent where the stream is no terminal."""

    shards: Sequence[Shard]
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], float] = monotonic
    done: Done = field(default_factory=Done)

    def __post_init__(self) -> None:
        units = [unit for shard in self.shards for unit in shard.units]
        self.tensors = sum(len(unit.outputs) for unit in units)
        self.bytes = sum(unit.bytes_in for unit in units)
        self._start = self.clock()
        self._shown = -EVERY
        self._shows = self.stream.isatty()

    def __call__(self, done: Done) -> None:
        """This adds what was done, and shows where things are."""
        self.done += done
        elapsed = self.clock() - self._start
        finished = self.done.bytes_in >= self.bytes
        if self._shows and (finished or elapsed - self._shown >= EVERY):
            self._shown = elapsed
            self.stream.write(f"\r{self.line(elapsed)}\x1b[K")
            self.stream.flush()

    def close(self) -> None:
        """This leaves the line as it stands."""
        if self._shows and self._shown >= 0:
            self.stream.write("\n")

    def line(self, elapsed: float) -> str:
        """The line after so many seconds."""
        done = self.done
        rate = done.bytes_in / elapsed if elapsed > 0 else 0.0
        left = f"{clock_text((self.bytes - done.bytes_in) / rate)} left" if rate else "…"
        return (
            f"{done.tensors:,} of {self.tensors:,} tensors, {gb(done.bytes_in)} of {gb(self.bytes)} GB read, "
            f"{rate / 1e9:.2f} GB/s, {left}"
        )


def gb(size: int) -> str:
    """Bytes in units of 10⁹."""
    return f"{size / 1e9:,.2f}"


def clock_text(seconds: float) -> str:
    """A time as `1:02:03`, or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
