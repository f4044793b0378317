"""The shape of the repository: what stands at the top, how long a file gets, where backends live."""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDERS = {"precc", "policies", "backends", "tests", "examples", "docs"}
FILES = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"}

MOST_LINES = 400
GENERATED = {"precc/syntax/_tables.py"}
"""Files that a program writes; the budget is for those that people read."""


def test_nothing_else_stands_at_the_top(files: list[str]) -> None:
    """A visitor sees the six folders and the five files that the architecture names, and dot-files."""
    top = {name.partition("/")[0] for name in files if not name.startswith(".")}
    assert top == FOLDERS | FILES


def test_no_source_file_is_longer_than_can_be_read_at_once(root: Path, files: list[str]) -> None:
    """A file of more than 400 lines is two subjects."""
    sources = [name for name in files if name.endswith(".py") and name not in GENERATED]
    lengths = {name: (root / name).read_bytes().count(b"\n") for name in sources}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_the_generated_files_are_there_and_say_so(root: Path) -> None:
    """An exception to the budget is for a file that exists and tells its reader not to edit it."""
    for name in GENERATED:
        assert re.search("generated|written by", (root / name).read_text()[:400], re.IGNORECASE), name


def test_a_backend_is_a_package_with_the_prefix(root: Path, files: list[str]) -> None:
    """A child called `sglang` would shadow the library; `backends` itself is a source root and no package."""
    children = {name.split("/")[1] for name in files if name.startswith("backends/")}
    assert {child for child in children if not child.startswith("precc_")} == set()
    assert all((root / "backends" / child / "__init__.py").exists() for child in children)


def test_ci_runs_what_a_person_runs(root: Path) -> None:
    """`.ci/run` can be executed and adds nothing to `make test`."""
    script = root / ".ci/run"
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert os.access(script, os.X_OK)
    assert commands[0] == "set -euo pipefail"
    assert commands[-1] == "make test"
    assert len(commands) == 3


def test_make_help_names_every_target(root: Path) -> None:
    """A target without its line in `make help` is one that nobody finds."""
    makefile = (root / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == set(re.findall(r"^([a-z]+):.* ## ", makefile, re.MULTILINE))
