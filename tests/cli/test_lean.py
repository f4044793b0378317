"""What a lint loads. It runs at every commit, on every file, so it loads what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cli.commands import Write

HEAVY = {
    "torch",
    "numpy",
    "pydantic",
    "rich",
    "yaml",
    "lark",
    "importlib.metadata",
    "tomllib",
    "json",
    "hashlib",
    "shutil",
    "tempfile",
    "subprocess",
    "difflib",
    "precc.graph.model",
    "precc.contract",
    "precc.backend",
    "precc.pipeline",
}


def loaded_by(code: str, *arguments: str, cwd: Path) -> set[str]:
    """The modules that are loaded at the end of some code in a process of its own."""
    code += "; import sys; sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_a_lint_of_a_file_loads_no_model_no_backend_and_nothing_heavy(project: Path, policy: Write) -> None:
    """Of a clean file, with rules, `extends` and an ignore comment."""
    policy("default: bf16\n", "base.prec")
    name = policy('extends "base.prec"\nlet e = nvfp4 per_token\nexperts.*: e\nexpect fraction(nvfp4) >= 75%\n')
    lint = "import sys; from precc.cli import main; assert main(sys.argv[1:]) == 0"
    bare = loaded_by("pass", cwd=project)
    assert (loaded_by(lint, "lint", name, cwd=project) - bare) & HEAVY == set()


def test_a_project_without_options_for_precc_is_not_parsed(project: Path, policy: Write) -> None:
    """Its `pyproject.toml` is looked at, and `tomllib` loaded only if it speaks of precc."""
    (project / "pyproject.toml").write_text('[project]\nname = "mine"\ndependencies = ["precc"]\n')
    lint = "import sys; from precc.cli import main; assert main(sys.argv[1:]) == 0"
    assert "tomllib" not in loaded_by(lint, "lint", policy("default: bf16\n"), cwd=project)


def test_the_overview_loads_no_verb_but_the_backends(project: Path) -> None:
    """Each verb is one module, loaded when it is given; those of backends bring their line of the overview."""
    modules = loaded_by("import sys; from precc.cli import main; main(['--help'])", cwd=project)
    assert not modules & {"precc.cli.lint", "precc.cli.compile", "precc.syntax.parser", "torch", "numpy", "yaml"}
