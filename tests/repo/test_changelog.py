"""News fragments become the changelog."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path


def test_every_fragment_has_a_kind_that_the_changelog_knows(root: Path, files: list[str]) -> None:
    """A fragment of an unknown kind would be left out of the release notes without a word."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = {kind["directory"] for kind in settings["type"]}
    fragments = [Path(name).name for name in files if name.startswith("docs/news/")]
    assert all(name.endswith(".md") and name.split(".")[-2] in kinds for name in fragments)


def test_a_release_can_be_drafted(root: Path) -> None:
    """Towncrier finds its place in the changelog and writes each fragment there."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9", "--date", "2000-01-01"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "## 9.9.9 (2000-01-01)" in done.stdout
    assert "<!-- towncrier release notes start -->\n" in (root / "CHANGELOG.md").read_text()
