"""The hooks, as pre-commit itself installs and runs them in somebody's project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

HOOKS = {"precc-lint", "precc-fmt", "precc-compile-check"}
MISSPELT = "# A name that no model has.\nkv_bproj: bf16\n@routed_experts:nvfp4 per_token\n"
REFUSED = "# A router below 16 bits.\n@router: nvfp4\n"


def git(folder: Path, *arguments: str) -> str:
    """This runs git with an identity of its own, whatever the machine is set up with."""
    identity = ["-c", "user.name=precc", "-c", "user.email=precc@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(folder: Path) -> str:
    """This commits all of a folder as a new repository; the commit's name."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def published(root: Path, files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """precc as it stands in the working tree, committed: pre-commit sees commits only."""
    folder = tmp_path_factory.mktemp("precc")
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folder / name)
    commit(folder)
    return folder


@pytest.fixture
def project(root: Path, published: Path, tmp_path: Path) -> Path:
    """The example project, its hooks taken from `published`."""
    folder = tmp_path / "project"
    shutil.copytree(root / "examples/pre-commit", folder)
    config = folder / ".pre-commit-config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["repos"][0].update(repo=str(published), rev=git(published, "rev-parse", "HEAD"))
    config.write_text(yaml.safe_dump(settings))
    commit(folder)
    return folder


def pre_commit(project: Path, *arguments: str) -> tuple[int, dict[str, str], str]:
    """This runs pre-commit with a store of its own: its status, each hook's outcome, and all that it printed."""
    environment = {**os.environ, "PRE_COMMIT_HOME": str(project.parent / "store"), "PRE_COMMIT_COLOR": "never"}
    environment = {name: value for name, value in environment.items() if not name.startswith("GIT_")}
    command = [sys.executable, "-m", "pre_commit", *arguments, "--verbose"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    outcomes = re.findall(r"^.*\.\.(Passed|Failed|Skipped|\(no files.*)\n- hook id: (\S+)", done.stdout, re.MULTILINE)
    return done.returncode, {hook: outcome for outcome, hook in outcomes}, done.stdout + done.stderr


def test_try_repo_runs_every_hook_on_a_good_policy(published: Path, project: Path) -> None:
    """pre-commit builds the environment from the repository, finds the models in `[tool.precc]`, and all pass."""
    status, outcomes, said = pre_commit(project, "try-repo", str(published), "--files", "policies/experts.prec")
    assert (status, outcomes) == (0, dict.fromkeys(HOOKS, "Passed")), said


def test_the_example_configuration_stops_a_bad_commit(project: Path) -> None:
    """Each hook says its own: a name that is meant otherwise, a format to mend, a policy that does not compile."""
    (project / "policies/misspelt.prec").write_text(MISSPELT)
    (project / "policies/refused.prec").write_text(REFUSED)
    git(project, "add", "--all")
    status, outcomes, said = pre_commit(project, "run")
    assert (status, outcomes) == (1, dict.fromkeys(HOOKS, "Failed")), said
    assert "P101" in said
    assert "kv_b_proj" in said
    assert "P401" in said
    assert "@routed_experts: nvfp4 per_token\n" in (project / "policies/misspelt.prec").read_text()


def test_the_manifest_is_valid_and_offers_the_three_hooks(root: Path) -> None:
    """pre-commit's own check of `.pre-commit-hooks.yaml`, and of the configuration of this repository."""
    for kind, name in (("manifest", ".pre-commit-hooks.yaml"), ("config", ".pre-commit-config.yaml")):
        command = [sys.executable, "-m", "pre_commit", f"validate-{kind}", str(root / name)]
        assert subprocess.run(command, check=False).returncode == 0
    offered = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text())
    assert {hook["id"] for hook in offered} == HOOKS
