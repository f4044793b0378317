"""The `console` blocks of a page: each command is run, and what it prints takes the place of what stood there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from generator.fences import Fence, fences

WIDTH = "110"
PROMPT = "$ "
INSTALL = "pip install "


class CommandFailed(Exception):
    """A command that did not exit as its block says."""


def run_page(page: str, path: Path, root: Path) -> str:
    """The page with the current output of its commands. Raises CommandFailed."""
    blocks = list(fences(page))
    if not any(block.language == "console" for block in blocks):
        return page
    with TemporaryDirectory(prefix="precc-docs-") as folder:
        try:
            return _run_blocks(page, blocks, Shell(Path(folder).resolve(), root))
        except CommandFailed as problem:
            raise CommandFailed(f"{path.relative_to(root)}: {problem}") from None


def _run_blocks(page: str, blocks: list[Fence], shell: Shell) -> str:
    pieces, at = [], 0
    for block in blocks:
        if block.file is not None:
            shell.write(block.file, block.text)
        elif block.language == "console":
            pieces += [page[at : block.start], shell.session(block)]
            at = block.end
    return "".join([*pieces, page[at:]])


class Shell:
    """Runs the commands of one page in its folder, with this interpreter's programs first on the path.

    `pip install` goes into a folder of its own, without dependencies: the environment stays as it is.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._site = folder / ".site"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        self._environment = kept | {
            "PATH": path,
            "COLUMNS": WIDTH,
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(self._site),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._root = str(root)

    def write(self, name: str, text: str) -> None:
        """A file of the page."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def session(self, block: Fence) -> str:
        """The block's text with what its commands print now. Raises CommandFailed."""
        lines: list[str] = []
        commands = list(_commands(block.text))
        for command in commands:
            expected = block.exit if command is commands[-1] else 0
            lines += [f"{PROMPT}{command}\n", self._output(command, expected)]
        return "".join(lines)

    def _output(self, command: str, expected: int) -> str:
        done = subprocess.run(
            ["bash", "-c", self._installing(command) if command.startswith(INSTALL) else command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        if done.returncode != expected:
            raise CommandFailed(f"$ {command}\n{done.stdout}exit status {done.returncode}, not {expected}")
        for place in (str(self._folder), self._root):
            if place in done.stdout:
                raise CommandFailed(f"$ {command}\nprints the folder that it happens to run in: {done.stdout}")
        return done.stdout.rstrip("\n") + "\n" if done.stdout.strip() else ""

    def _installing(self, command: str) -> str:
        what = command.removeprefix(INSTALL).replace("-e ", "")
        pip = f'"{sys.executable}" -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation'
        return f'{pip} --root-user-action ignore --target "{self._site}" {what}'


def _commands(text: str) -> Iterator[str]:
    """The commands of a block; one that ends a line with a backslash goes on in the next."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(PROMPT):
            command = line.removeprefix(PROMPT)
            while command.endswith("\\"):
                command += "\n" + next(lines)
            yield command
