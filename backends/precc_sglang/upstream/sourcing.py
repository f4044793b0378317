"""The environment that `env.sh` makes of a shell full of contrary variables, and what SGLang then reads."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Any

Wanted = Mapping[str, str | None]
"""The value that each variable must have, None for unset."""

CONTRARY = {"1": "0", "0": "1", "MAE": "MSE", "MSE": "MAE"}

SCRIPT = 'set -u; . "$0/env.sh"; env -0'


def source(folder: str, wanted: Wanted) -> None:
    """This sources a folder's `env.sh` over contrary variables, and makes the result this process's environment."""
    before = {**os.environ, **{name: _contrary(name, value) for name, value in wanted.items()}}
    shell = subprocess.run(["sh", "-c", SCRIPT, folder], env=before, capture_output=True)
    if shell.returncode:
        raise RuntimeError(shell.stderr.decode(errors="replace").strip() or f"sh ended with {shell.returncode}")
    pairs = (line.partition("=") for line in shell.stdout.decode().split("\0") if line)
    after = {name: value for name, _, value in pairs}
    os.environ.clear()
    os.environ.update(after)


def _contrary(name: str, wanted: str | None) -> str:
    """A value that says the opposite: of what is wanted, or of what SGLang assumes where nothing is."""
    if wanted is not None:
        return CONTRARY.get(wanted, "1")
    field = _field(name)
    return "0" if field is not None and field._resolve_default() is True else "1"


def misread(wanted: Wanted) -> dict[str, tuple[str, str]]:
    """The variables that SGLang reads otherwise than it must; of those it does not declare, the bare value."""
    found = {}
    for name, value in wanted.items():
        field = _field(name)
        if field is None:
            pair = os.environ.get(name), value
        else:
            pair = field.get(), field._resolve_default() if value is None else field.parse(value)
        if pair[0] != pair[1]:
            found[name] = _said(pair[0]), _said(pair[1])
    return found


def _field(name: str) -> Any:
    """A variable as SGLang declares it; None for one that it reads bare, or that is another library's."""
    from sglang.srt import environ

    return getattr(environ.envs, name, None) if name in dir(environ.envs) else None


def _said(value: object) -> str:
    return "unset" if value is None else str(value)
