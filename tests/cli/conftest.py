"""Running the command line in this process, in an empty project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli.commands import Result, Run

from precc.cli import main


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder, which is the current one."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRECC_TRACEBACK", raising=False)
    return tmp_path


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """This runs `precc` with some arguments and returns its status and output."""

    def run(*arguments: str) -> Result:
        status = main(arguments)
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def policy(project: Path) -> Callable[..., str]:
    """This writes a policy and returns its name."""

    def write(text: str, name: str = "policy.prec") -> str:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return name

    return write
