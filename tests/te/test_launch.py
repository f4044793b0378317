"""Launch lines of Megatron: the right one passes, and each way to be wrong is one finding with what to write."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from te.support import INNER, MIXED, MXFP8, POLICIES, TWO_BACKWARDS, TWO_LINES, compiled

from precc.contract import Contract
from precc.diagnostics import Diagnostic
from precc_te import backend
from precc_te.environment import VARIABLES
from precc_te.forbidden import FORBIDDEN

QWEN, DEEPSEEK = "qwen3-30b-a3b", "deepseek-v3"


@cache
def emitted(contract: Contract) -> dict[str, str]:
    """The files of `te/`, by their own names."""
    return {os.path.basename(artifact.path): artifact.text for artifact in backend.emit(contract)}


def written(contract: Contract, folder: Path) -> Path:
    """The folder with these files."""
    for name, text in emitted(contract).items():
        (folder / name).write_text(text)
    return folder


def line(contract: Contract, folder: Path, *more: str) -> list[str]:
    """The launch line of the documentation, in a folder with the artifacts."""
    words = ["torchrun", "pretrain_gpt.py", "--lr", "1e-6", *emitted(contract)["megatron.args"].split()]
    return [*words, "--te-precision-config-file", str(written(contract, folder) / "te_precision.yaml"), *more]


def sourced(contract: Contract) -> dict[str, str]:
    """The environment behind `env.sh`."""
    variables: dict[str, str] = json.loads(emitted(contract)["env.json"])["set"]
    return {"PATH": "/bin", **variables}


def attest(contract: Contract, words: Sequence[str], environment: dict[str, str] | None = None) -> list[Diagnostic]:
    """The findings of a line under the right environment, or another."""
    attested = backend.attest_launch(contract, words, sourced(contract) if environment is None else environment)
    assert (attested.target, attested.digest) == ("te", contract.digest)
    return list(attested.findings)


def one(findings: Sequence[Diagnostic], code: str = "P511") -> tuple[str, str]:
    """Message and help of the only finding."""
    (finding,) = findings
    assert finding.code == code
    return finding.message, finding.help or ""


@pytest.mark.parametrize("policy", POLICIES)
def test_the_emitted_line_and_environment_pass(policy: str, tmp_path: Path) -> None:
    """For every policy of this target's tests, under one pipeline stage."""
    contract = compiled(POLICIES[policy], QWEN)
    assert attest(contract, line(contract, tmp_path)) == []


def test_every_emitted_argument_is_missed(tmp_path: Path) -> None:
    """Leaving out any one that Megatron does not assume by itself is one finding that says the words to add."""
    contract = compiled(MXFP8, DEEPSEEK)
    words = line(contract, tmp_path)
    assumed = {"--transformer-impl transformer_engine"}
    for argument in emitted(contract)["megatron.args"].splitlines():
        name, _, value = argument.partition(" ")
        if argument in assumed or name == "--te-precision-config-file":
            continue
        at = words.index(name)
        shorter = words[:at] + words[at + 1 + bool(value) :]
        message, help = one(attest(contract, shorter))
        assert f"{name} is missing" in message
        assert help == f"say {argument}"


def test_the_last_of_a_repeated_argument_counts(tmp_path: Path) -> None:
    """As in argparse, also written `--name=value`."""
    contract = compiled(MXFP8, DEEPSEEK)
    message, _ = one(attest(contract, line(contract, tmp_path, "--fp8-recipe=blockwise")))
    assert "the line says --fp8-recipe blockwise; the contract needs --fp8-recipe mxfp8" in message
    assert attest(contract, line(contract, tmp_path, "--fp8-recipe=blockwise", "--fp8-recipe", "mxfp8")) == []


def test_another_engine_wide_format_is_found(tmp_path: Path) -> None:
    """A user's own --fp8-format beside NVFP4, --fp16 beside --bf16, and first layers that nobody decided."""
    contract = compiled(MIXED, QWEN)
    assert "this contract has none" in one(attest(contract, line(contract, tmp_path, "--fp8-format", "hybrid")))[0]
    assert one(attest(contract, line(contract, tmp_path, "--fp16")))[1] == "leave --fp16 out"
    flagged = attest(contract, line(contract, tmp_path, "--first-last-layers-bf16"))
    assert one(flagged)[1] == "leave --first-last-layers-bf16 out"
    assert attest(contract, line(contract, tmp_path, "--fp8-recipe", "delayed")) == []


@pytest.mark.parametrize("forbidden", FORBIDDEN, ids=lambda each: each.argument)
def test_an_argument_that_defeats_the_contract_is_p702(forbidden: object, tmp_path: Path) -> None:
    """A user's own --fp8-param-gather, and the others of the list."""
    contract = compiled(TWO_LINES, DEEPSEEK)
    argument: str = forbidden.argument  # type: ignore[attr-defined]
    message, help = one(attest(contract, line(contract, tmp_path, argument)), "P702")
    assert argument in message
    assert help == f"leave {argument} out"


def test_every_variable_is_checked(tmp_path: Path) -> None:
    """A missing one, a contrary one, and a stale one that another run left."""
    contract = compiled(TWO_LINES, QWEN)
    right = sourced(contract)
    words = line(contract, tmp_path)
    for name in VARIABLES:
        needed = right.get(name)
        wrong = [{**right, name: "7"}, {key: value for key, value in right.items() if key != name} if needed else None]
        for environment in filter(None, wrong):
            message, help = one(attest(contract, words, environment))
            assert message.startswith(f"{name} is {environment.get(name, 'unset')}; the contract needs")
            assert help == "source out/te/env.sh"


def test_a_recipe_file_is_read_and_the_tensors_named(tmp_path: Path) -> None:
    """None, one that is not there, another contract's, and one that was edited."""
    contract = compiled(TWO_LINES, QWEN)
    words = line(contract, tmp_path)
    file = tmp_path / "te_precision.yaml"
    bare = [w for w in words if "te-precision" not in w and not w.endswith(".yaml")]
    assert "every linear layer runs the engine-wide recipe" in one(attest(contract, bare))[0]
    text = file.read_text()
    file.write_text(text.replace('linear_fc2", config: nvfp4_per_token_high_precision', 'linear_fc2", config: bf16'))
    message, _ = one(attest(contract, words))
    assert "down_proj` (6,144 tensors) would run as bf16; the contract says nvfp4" in message
    file.write_text(text.replace("glob", "regex"))
    assert "regex" in one(attest(contract, words))[0]
    other = emitted(compiled(MXFP8, QWEN))["te_precision.yaml"]
    file.write_text(other)
    assert f"belongs to contract {compiled(MXFP8, QWEN).digest[:12]}" in one(attest(contract, words))[0]
    file.write_bytes(b"\xff\xfe")
    assert "it is no text" in one(attest(contract, words))[0]
    file.unlink()
    assert "cannot be read: No such file or directory" in one(attest(contract, words))[0]


def test_a_recipe_file_may_stand_in_the_line_itself(tmp_path: Path) -> None:
    """As `base64:…`, without comments, in another order of matchers that do not overlap."""
    contract = compiled(TWO_LINES, QWEN)
    *head, first, second, last = (
        text for text in emitted(contract)["te_precision.yaml"].splitlines() if not text.startswith("#")
    )
    inline = b64encode("\n".join([*head, second, first, last]).encode()).decode()
    words = line(contract, tmp_path, "--te-precision-config-file", f"base64:{inline}")
    assert attest(contract, words) == []
    assert "it is no text" in one(attest(contract, [*words[:-1], "base64:???"]))[0]


def staged_line(contract: Contract, folder: Path) -> list[str]:
    """The launch line of a contract with a recipe file a stage."""
    wrapper = str(written(contract, folder) / "with_stage_recipe.sh")
    arguments = emitted(contract)["megatron.args"].split()
    return ["torchrun", wrapper, "python", "pretrain_gpt.py", *arguments, "--pipeline-model-parallel-size", "4"]


def test_a_recipe_a_stage_goes_through_the_wrapper(tmp_path: Path) -> None:
    """The script and every file beside it are compared."""
    contract = compiled(INNER, QWEN, "pp=4")
    words = staged_line(contract, tmp_path)
    assert attest(contract, words) == []
    assert "adds the one of each stage" in one(attest(contract, [*words, "--te-precision-config-file", "x"]))[0]
    stage = tmp_path / "te_precision.stage0.yaml"
    stage.write_text(stage.read_text().replace("decoder.layers.5.", "decoder.layers.6."))
    assert "would run as" in one(attest(contract, words))[0]
    (tmp_path / "with_stage_recipe.sh").write_text('exec "$@"\n')
    assert "is not the script that was compiled" in one(attest(contract, words))[0]


def test_one_rank_may_name_its_stages_file(tmp_path: Path) -> None:
    """Where the launcher has told its rank; a line for all ranks may not."""
    contract = compiled(INNER, QWEN, "pp=4")
    words = staged_line(contract, tmp_path)[2:]
    words += ["--te-precision-config-file", str(tmp_path / "te_precision.stage1.yaml")]
    rank = {**sourced(contract), "WORLD_SIZE": "8"}
    assert attest(contract, words, {**rank, "RANK": "2"}) == []
    assert "would run as" in one(attest(contract, words, {**rank, "RANK": "0"}))[0]
    assert "one for each of 4 pipeline stages" in one(attest(contract, words))[0]


@pytest.mark.parametrize(
    "policy, sizes, words",
    [
        (TWO_LINES, ("--expert-tensor-parallel-size", "2"), "would have its own NVFP4 outer scale"),
        (TWO_LINES, ("--tensor-model-parallel-size", "2"), "etp=2"),
        (INNER, ("--pipeline-model-parallel-size", "2"), "layer numbers in these are those of pp=1"),
        (INNER, ("--num-virtual-stages-per-pipeline-rank", "2"), "no recipe can name them"),
        (INNER, ("--decoder-first-pipeline-num-layers", "3"), "no recipe can name them"),
        (MXFP8, ("--pipeline-model-parallel-size", "8"), "Megatron allows 6 at pp=8"),
    ],
)
def test_a_layout_under_which_the_files_say_something_else_is_found(
    policy: str, sizes: tuple[str, str], words: str, tmp_path: Path
) -> None:
    """Stages renumber layers, and shards have scales of their own."""
    contract = compiled(policy, QWEN)
    message, help = one(attest(contract, line(contract, tmp_path, *sizes)))
    assert words in message
    assert "the sizes that it was compiled for" in help


def test_a_layout_that_changes_nothing_is_free(tmp_path: Path) -> None:
    """Block scales are local, and whole first and last layers are counted globally."""
    contract = compiled(MXFP8, QWEN)
    sizes = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8"
    assert attest(contract, line(contract, tmp_path, *sizes.split())) == []


def test_factories_leave_the_backward_variable_unset(tmp_path: Path) -> None:
    """A stale NVTE_BACKWARD_OVERRIDE would decide all of them."""
    contract = compiled(TWO_BACKWARDS, QWEN)
    stale = {**sourced(contract), "NVTE_BACKWARD_OVERRIDE": "dequantized"}
    message, _ = one(attest(contract, line(contract, tmp_path), stale))
    assert "NVTE_BACKWARD_OVERRIDE is dequantized; the contract needs it unset: it decides the backward" in message


@pytest.mark.parametrize(
    "words, expected",
    [
        (["python", "/opt/megatron/pretrain_gpt.py"], True),
        (["python3", "train.py", "--actor-num-nodes", "1", "--fp8-format=e4m3"], True),
        (["python", "-m", "sglang.launch_server", "--tp", "8"], False),
        (["make", "--bf16-please"], False),
    ],
)
def test_a_line_is_recognized(words: list[str], expected: bool) -> None:
    """By Megatron's scripts, or by arguments that only Megatron has."""
    assert backend.launches(words) == expected


def test_the_record_counts_and_names_versions(tmp_path: Path) -> None:
    """What was compared, and the engines that are installed here."""
    contract = compiled(TWO_LINES, QWEN)
    record = backend.attest_launch(contract, line(contract, tmp_path, "--fp16"), sourced(contract)).to_json()
    assert record["contract"] == contract.digest
    assert record["modules"] == 10 + 1 + len(json.loads(emitted(contract)["env.json"])["forbidden_arguments"]) + len(
        VARIABLES
    )
    assert len(record["differences"]) == 1  # type: ignore[arg-type]
    assert set(record["engines"]) <= {"megatron_core", "te"}  # type: ignore[call-overload]
