"""Options in `[tool.precc]` of a project's `pyproject.toml`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.commands import Run, Write

QWEN, DEEPSEEK = "qwen3-30b-a3b", "deepseek-v3"


def configure(folder: Path, *lines: str) -> None:
    """This writes a project's options."""
    (folder / "pyproject.toml").write_text("\n".join(["[tool.precc]", *lines, ""]), encoding="utf-8")


def test_models_of_the_project_are_linted_unless_the_command_line_names_some(
    run: Run, project: Path, policy: Write
) -> None:
    """The command line wins."""
    configure(project, f'models = ["{QWEN}"]')
    name = policy("kv_b_proj: bf16\n")
    assert "P102" in run("lint", name).out
    assert "P102" not in run("lint", name, "--model", DEEPSEEK).out


def test_every_key_takes_part(run: Run, project: Path, policy: Write) -> None:
    """Selection, output format, layouts and targets."""
    name = policy("@routed_experts: fp8_block\n")
    configure(project, f'models = ["{QWEN}"]', 'rollout = "tp=8"', 'select = ["P302"]', 'output-format = "concise"')
    (line,) = run("lint", name).out.splitlines()
    assert " P302 error " in line
    configure(project, f'models = ["{QWEN}"]', 'rollout = "tp=8"', 'ignore = ["P3", "P7"]', 'targets = ["converter"]')
    assert "P302" not in run("lint", name).out
    configure(project, f'models = ["{QWEN}"]', 'train = "tp=x"')
    assert run("lint", name).status == 2


def test_targets_of_the_project_narrow_those_of_a_policy(run: Run, project: Path, policy: Write) -> None:
    """A policy that is for others is no error as long as one is left; with none left it is."""
    configure(project, 'targets = ["converter", "te"]')
    compiled = run("compile", policy("targets: converter, sglang\n"), "-m", QWEN, "--output-format", "json")
    assert list(compiled.json["verified"]) == ["converter"]
    other = run("compile", policy("targets: sglang\n"), "-m", QWEN)
    assert other.status == 2
    assert "[tool.precc] asks for converter, te" in other.err


def test_the_nearest_project_above_the_policy_counts(run: Run, project: Path, policy: Write) -> None:
    """Not the one of the current folder."""
    configure(project, 'output-format = "concise"')
    inner = policy("default: mxfp9\n", "inner/policies/x.prec")
    assert run("lint", inner).out.startswith("inner/policies/x.prec:1:10: P002")
    configure(project / "inner", 'output-format = "json"')
    assert run("lint", inner).json[0]["code"] == "P002"


@pytest.mark.parametrize(
    "lines, words",
    [
        (['model = ["x"]'], "has no key `model`; it takes models, targets,"),
        (['models = "x"'], "`models` of [tool.precc] has to be a list of texts"),
        (["models = [1]"], "`models` of [tool.precc] has to be a list of texts"),
        (["train = 8"], "`train` of [tool.precc] has to be a text"),
        (['targets = ["tensorrt"]', f'models = ["{QWEN}"]'], "[tool.precc] names the target `tensorrt`"),
        (['select = ["P999"]'], "there is no code `P999`"),
        (['output-format = "xml"'], "there is no output format `xml`"),
        (["models = ["], "not valid TOML"),
        (['models = ["no-such-model"]'], "`no-such-model` is neither a known model nor a file"),
    ],
)
def test_a_mistake_in_the_options_is_one_line(
    run: Run, project: Path, policy: Write, lines: list[str], words: str
) -> None:
    """A key that nobody reads would be obeyed in its author's mind only."""
    configure(project, *lines)
    result = run("lint", policy("default: bf16\n"))
    assert (result.status, result.out) == (2, "")
    assert words in result.err
    assert result.err.count("\n") == 1


def test_options_of_other_tools_are_none_of_ours(run: Run, project: Path, policy: Write) -> None:
    """Also in a file that is no valid TOML for them to read."""
    (project / "pyproject.toml").write_text('[tool.ruff]\nmodels = 3\n[project]\nname = "precc-user"\n')
    assert run("lint", policy("default: bf16\n")).status == 0
