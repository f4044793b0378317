"""A running `upstream.py`: Megatron's own code, asked by JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

SERVER = Path(__file__).with_name("upstream.py")


class Upstream:
    """One process that has Megatron's code loaded."""

    def __init__(self) -> None:
        command = [sys.executable, str(SERVER)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, operation: str, environment: Mapping[str, str] | None = None, **request: Any) -> Any:
        """One answer, in an environment (this process's own by default). Fails where Megatron did."""
        asked = {"operation": operation, "environment": dict(environment or os.environ), **request}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        found = json.loads(self._process.stdout.readline())
        assert not (isinstance(found, dict) and "error" in found), found["error"]
        return found
