"""A conversion on a real Ray cluster of several worker processes; run as a process of its own.

`python -m converter.on_ray SOURCE OUT COMPILED SIZE MARK`: one worker is killed while it holds a piece, unless the file
MARK is there. Prints the process numbers of all workers that took part.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from precc_converter import convert
from precc_converter.conversion.crew import Crew

WORKERS = 3
FATAL = 3
"""The call at which a worker dies."""


def noted(folder: Path, mark: Path | None, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A call, done by a worker that leaves its number, and dies at its work the first time it is given `mark`."""
    (folder / str(os.getpid())).touch()
    done = function(*arguments)
    if mark is not None and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return done


class Noting:
    """The crew of a cluster, its workers noted and one of them killed."""

    spread = True

    def __init__(self, crew: Crew, folder: Path, mark: Path) -> None:
        self.workers = crew.workers
        self._crew = crew
        self._folder = folder
        self._mark = mark
        self._calls = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """This hands a call on."""
        self._calls += 1
        fatal = self._mark if self._calls == FATAL else None
        return self._crew.submit(noted, self._folder, fatal, function, arguments)


def main() -> None:
    """This starts a cluster and converts on it."""
    warnings.filterwarnings("ignore")
    source, out, compiled, size, mark = sys.argv[1:]
    folder = Path(mark).with_suffix(".workers")
    folder.mkdir()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="error")
    from contextlib import contextmanager

    from precc_converter.conversion import shards
    from precc_converter.conversion.cluster import cluster

    shards.PIECE_BYTES = 200_000

    @contextmanager
    def noting() -> Any:
        with cluster(None, "cpu") as crew:
            yield Noting(crew, folder, Path(mark))

    convert(source, out, compiled, device="cpu", max_shard_size=int(size), crew=noting())
    ray.shutdown()


if __name__ == "__main__":
    main()
