"""The worker's other end: a process with SGLang's code loaded, asked in turn."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, Any

from precc.backend import EngineUnavailable
from precc_sglang.environment import VARIABLES
from precc_sglang.versions import RELEASES

_DECIDING = frozenset({*VARIABLES, *(name for release in RELEASES.values() for name in release.variables)})

INSTALL = (
    "install it with what it imports, without the CUDA libraries that its metadata asks for: the commands are in "
    "docs/verification.md, `Installing the engines`"
)


class Worker:
    """One process. It imports SGLang once, which takes some seconds; each question is answered in a fork of it."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        problem = self._answer()
        if problem is not None:
            raise EngineUnavailable(f"SGLang does not load here: {problem}", INSTALL)

    def ask(self, operation: str, *arguments: Any) -> Any:
        """One answer of `worker.OPERATIONS`. Raises EngineUnavailable if the process is gone."""
        assert self._process.stdin is not None
        try:
            pickle.dump((operation, arguments), self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            words = self._last_words()
            raise EngineUnavailable(f"the process with SGLang's code ended: {words}", INSTALL) from None

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


@contextmanager
def started(
    path: Sequence[str] = (), program: Sequence[str] = ("-m", "precc_sglang.upstream.worker")
) -> Iterator[Worker]:
    """A live worker, in this process's environment without the variables that decide precision.

    It finds SGLang in the folders of `path` first. `program` is what Python runs: the worker, or one that adds to it.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _DECIDING}
    if path:
        environment["PYTHONPATH"] = os.pathsep.join((*path, *filter(None, [os.environ.get("PYTHONPATH")])))
    command = [sys.executable, "-P", *program]
    pipe = subprocess.PIPE
    with (
        TemporaryFile() as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=environment) as process,
    ):
        try:
            yield Worker(process, errors)
        finally:
            process.communicate()
