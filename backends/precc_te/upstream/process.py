"""The worker's other end: a process with Megatron's code loaded, asked in turn."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Self, TypeVar

from precc.backend import EngineUnavailable
from precc_te.upstream.wire import Engines, Stop
from precc_te.versions import MEGATRON_CORE, TE

Answer = TypeVar("Answer")

INSTALL = (
    "`pip install 'precc[te]' torch`, or only what judges, without the CUDA libraries of the engines' metadata: "
    f"`pip install --no-deps megatron-core=={MEGATRON_CORE[-1]} transformer-engine=={TE[0]}` beside torch, numpy, "
    "packaging, pydantic and pyyaml"
)


class Worker:
    """One process. `engines` are folders of engines that come before the installed ones, and before PYTHONPATH."""

    def __init__(self, engines: Sequence[Path | str] = ()) -> None:
        paths = [*map(str, engines), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._engines: Engines | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()
        if self._said is not None:
            self._said.close()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def engines(self) -> Engines:
        """What is installed. Starts the process, which takes a few seconds, on first use."""
        if self._engines is None:
            self._engines = self._start()
        return self._engines

    def ask(
        self, function: Callable[..., Answer], environment: Mapping[str, str] | None = None, **request: Any
    ) -> Answer | Stop:
        """What a function of an importable module answers there, in an environment (by default this worker's own)."""
        _ = self.engines
        asked = (function, dict(self.environment if environment is None else environment), request)
        process = self._running()
        assert process.stdin is not None
        pickle.dump(asked, process.stdin)
        process.stdin.flush()
        return self._answer()  # type: ignore[no-any-return]

    def _start(self) -> Engines:
        self._said = TemporaryFile()  # noqa: SIM115 - closed with the process
        pipe = subprocess.PIPE
        command = [sys.executable, "-P", "-m", "precc_te.upstream.worker"]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._said, env=self.environment)
        found = self._answer()
        assert isinstance(found, Engines)
        return found

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _answer(self) -> Any:
        stdout = self._running().stdout
        assert stdout is not None
        try:
            return pickle.load(stdout)
        except EOFError:
            raise EngineUnavailable(f"the process with Megatron's code ended: {self._last_words()}", INSTALL) from None

    def _last_words(self) -> str:
        assert self._said is not None
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
