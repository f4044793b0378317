"""The examples do what their pages say."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from precc.cli import main

EXAMPLE = "examples/qwen3-30b-a3b-nvfp4-rl"


@pytest.fixture(scope="module")
def out(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled example."""
    folder = tmp_path_factory.mktemp("example") / "out"
    policy = str(root / EXAMPLE / "policy.prec")
    assert main(["compile", policy, "--model", "qwen3-30b-a3b", "-o", str(folder)]) == 0
    return folder


def commands(page: str) -> list[str]:
    """The commands of a page's console blocks, continued lines joined."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    joined = "".join(blocks).replace("\\\n", " ")
    return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]


def test_every_file_that_the_page_names_is_written(root: Path, out: Path) -> None:
    """A launch line that names a file which no compile writes would fail on the cluster."""
    page = (root / EXAMPLE / "README.md").read_text()
    named = set(re.findall(r"out/((?:te|sglang|converter)/[\w.]+)", page))
    assert len(named) == 8
    assert {name for name in named if not (out / name).is_file()} == set()


def test_every_precc_command_of_the_page_runs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands in their order, from the example's folder."""
    (tmp_path / "policy.prec").write_bytes((root / EXAMPLE / "policy.prec").read_bytes())
    monkeypatch.chdir(tmp_path)
    lines = [line for line in commands((root / EXAMPLE / "README.md").read_text()) if line.startswith("precc ")]
    assert len(lines) == 4
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, (line, capsys.readouterr())


def test_a_shell_takes_the_trainers_files_as_the_page_shows(out: Path) -> None:
    """`env.sh` sets and unsets, and `$(cat megatron.args)` falls into words; the absolute path comes last."""
    script = 'source te/env.sh; printf "%s\\n" "$NVTE_NVFP4_ROW_SCALED_ACTIVATION" "${NVTE_NVFP4_4OVER6-unset}" '
    script += '$(cat te/megatron.args) --te-precision-config-file "$PWD/te/te_precision.yaml"'
    stale = {"NVTE_NVFP4_4OVER6": "1", "PATH": "/usr/bin:/bin"}
    command = ["bash", "-euc", script]
    done = subprocess.run(command, cwd=out, env=stale, check=True, capture_output=True, text=True)
    row_scaled, four_over_six, *arguments = done.stdout.splitlines()
    assert (row_scaled, four_over_six) == ("1", "unset")
    assert arguments[arguments.index("--num-layers-at-start-in-bf16") + 1] == "1"
    assert arguments[arguments.index("--num-layers-at-end-in-bf16") + 1] == "8"
    assert Path(arguments[-1]).is_file()


def test_the_servers_arguments_are_the_layout_of_the_policy(out: Path) -> None:
    """`server.yaml` states the sizes that the compile checked."""
    server = yaml.safe_load((out / "sglang/server.yaml").read_text())
    assert (server["tp-size"], server["ep-size"]) == (2, 2)


def test_every_ready_and_example_policy_is_formatted_and_clean(root: Path) -> None:
    """What we show is what `precc fmt` writes and `precc lint` passes."""
    folders = [str(root / "policies"), str(root / "examples")]
    assert main(["fmt", "--check", *folders]) == 0
    assert main(["lint", *folders]) == 0


def test_every_link_of_an_examples_page_leads_somewhere(root: Path) -> None:
    """A relative link names a file of the repository."""
    for page in (root / "examples").glob("*/README.md"):
        targets = re.findall(r"\]\(([^):]+)\)", page.read_text())
        assert targets
        assert [target for target in targets if not (page.parent / target).exists()] == []
