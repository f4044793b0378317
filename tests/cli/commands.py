"""What a command leaves behind, and running one as users do."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

PRECC = [sys.executable, "-m", "precc"]
"""The command line in a process of its own."""


class Result(NamedTuple):
    """Status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output as JSON."""
        return json.loads(self.out)


Run = Callable[..., Result]
Write = Callable[..., str]


def precc(*arguments: str, cwd: Path, **more: Any) -> Result:
    """This runs `precc` in a process of its own, where a traceback or a flush at exit would show."""
    environment = {**os.environ, **more.pop("env", {})}
    done = subprocess.run([*PRECC, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, **more)
    return Result(done.returncode, done.stdout, done.stderr)


def at_a_terminal(project: Path, *arguments: str, env: dict[str, str]) -> str:
    """The output of a command whose standard output is a terminal."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | env
    process = subprocess.Popen([*PRECC, *arguments], stdout=theirs, cwd=project, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    process.wait(timeout=60)
    return shown.decode()


def edit(out: Path, name: str, old: str, new: str) -> None:
    """This changes a file, and the manifest with it, so that only its meaning tells."""
    path, manifest = out / name, out / "MANIFEST.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    shown = json.loads(manifest.read_text())
    shown["files"][name] = sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(shown))
