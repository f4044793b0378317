"""What is written, as a reviewer reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from te.support import INNER, MIXED, MODELS, MTP, MXFP8, POLICIES, TWO_BACKWARDS, TWO_LINES, compiled, emitted, findings

from precc.contract import Contract
from precc_te import backend
from precc_te.emission import ENV_JSON, ENV_SHELL
from precc_te.environment import (
    BLOCK_FP32,
    NO_HADAMARD,
    NO_STOCHASTIC_ROUNDING,
    NO_WEIGHT_2D,
    ROW_SCALED,
    VARIABLES,
)
from precc_te.modules import modules_of
from precc_te.stages import script, script_stages

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    "name, policy, model", [("two_lines", TWO_LINES, "deepseek-v3"), ("mxfp8", MXFP8, "deepseek-v3")]
)
def test_the_artifacts_are_the_golden_ones(name: str, policy: str, model: str) -> None:
    """Reviewed by eye; the digest is left out."""
    contract = compiled(policy, model)
    shown = "".join(f"==> {path}\n{text}" for path, text in emitted(contract).items())
    assert shown.replace(contract.digest, "DIGEST") == (GOLDEN / f"{name}-{model}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_tensor_reads_back_as_decided(policy: str, model: str) -> None:
    """Emit, read by the engine's rules, compare: every entry agrees, and names the file that decided it."""
    contract = compiled(POLICIES[policy], model)
    artifacts = emitted(contract)
    assert findings(contract, artifacts) == ()
    readings = backend.read_back(contract, artifacts)
    assert len(readings) == len(contract.entries)
    assert all("te/te_precision.yaml" in r.because or "outside TransformerEngine" in r.because for r in readings)


@pytest.mark.parametrize("train", ["pp=4", "pp=2 ep=8", "megatron_core=0.16.1 te=2.19", "megatron_core=0.19"])
@pytest.mark.parametrize("policy", ["single layers", "two backward modes", "mtp under fp4"])
def test_every_layout_and_version_reads_back_as_decided(policy: str, train: str) -> None:
    """Local layer and expert numbers, the MTP layer's inner name and the recipe fields of a version take part."""
    contract = compiled(POLICIES[policy], "qwen3-30b-a3b", train)
    assert findings(contract, emitted(contract)) == ()


def test_a_mix_of_nvfp4_and_mxfp8_has_nvfp4_as_its_global_mode() -> None:
    """The padding of experts follows the global mode."""
    arguments = emitted(compiled(MIXED, "qwen3-30b-a3b"))["te/megatron.args"].splitlines()
    assert "--fp4-format e2m1" in arguments
    assert not [line for line in arguments if line.startswith("--fp8")]


def test_both_counts_of_bf16_layers_are_always_written() -> None:
    """Megatron's own defaults are one and one, so that a stray flag of a launcher would otherwise keep two layers."""
    plain = emitted(compiled(TWO_LINES, "qwen3-30b-a3b"))["te/megatron.args"].splitlines()
    assert {"--num-layers-at-start-in-bf16 0", "--num-layers-at-end-in-bf16 0"} <= set(plain)
    assert "--first-last-layers-bf16" not in plain
    ended = emitted(compiled(MXFP8, "qwen3-30b-a3b"))["te/megatron.args"].splitlines()
    assert {"--first-last-layers-bf16", "--num-layers-at-end-in-bf16 8"} <= set(ended)


def test_dense_layers_ahead_of_the_experts_need_no_flag() -> None:
    """Layers in BF16 that hold nothing which is quantized elsewhere are no exception."""
    arguments = emitted(compiled(TWO_LINES, "deepseek-v3"))["te/megatron.args"]
    assert "--first-last-layers-bf16" not in arguments


def test_only_an_mtp_layer_under_fp4_overrides_an_unquantized_autocast() -> None:
    """FP4 never surrounds the MTP block; elsewhere the override would undo the layers kept in BF16."""
    under_fp4 = emitted(compiled(MTP, "deepseek-v3"))["te/te_precision.yaml"]
    assert "mxfp8_dequantized" not in under_fp4
    assert under_fp4.count("override_nonquantized_autocast") == 1
    under_fp8 = emitted(compiled("default: mxfp8\n@mtp: mxfp8\n", "deepseek-v3"))["te/te_precision.yaml"]
    assert "override_nonquantized_autocast" not in under_fp8


def test_one_backward_mode_is_a_variable_and_two_are_factories() -> None:
    """The variable is process-wide; with two modes it is unset, and factories say which."""
    one = json.loads(emitted(compiled(TWO_LINES, "qwen3-30b-a3b"))[ENV_JSON])
    assert one["set"]["NVTE_BACKWARD_OVERRIDE"] == "high_precision"
    two = emitted(compiled(TWO_BACKWARDS, "qwen3-30b-a3b"))
    assert "NVTE_BACKWARD_OVERRIDE" in json.loads(two[ENV_JSON])["unset"]
    for mode in ("high_precision", "dequantized"):
        assert f'"precc_te.factories.nvfp4_per_token_{mode}"' in two["te/te_precision.yaml"]


def test_per_token_nvfp4_is_exact_and_plain() -> None:
    """Row scaling on; Hadamard, 2-D weights and stochastic rounding off; exact arithmetic."""
    variables = json.loads(emitted(compiled(TWO_LINES, "qwen3-30b-a3b"))[ENV_JSON])["set"]
    assert variables == {
        "NVTE_BACKWARD_OVERRIDE": "high_precision",
        "NVTE_NVFP4_DISABLE_RHT": "1",
        "NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING": "1",
        "NVTE_NVFP4_DISABLE_2D_QUANTIZATION": "1",
        "NVTE_NVFP4_ROW_SCALED_ACTIVATION": "1",
        "NVTE_USE_FAST_MATH": "0",
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_the_environment_replaces_any_other(policy: str, tmp_path: Path) -> None:
    """Sourced under `set -u` and over stale values of every variable, exactly the stated ones are left."""
    artifacts = emitted(compiled(POLICIES[policy], "qwen3-30b-a3b"))
    script_path = tmp_path / "env.sh"
    script_path.write_text(artifacts[ENV_SHELL])
    stale = {"PATH": os.environ["PATH"], **dict.fromkeys(VARIABLES, "stale")}
    for before in (stale, {"PATH": os.environ["PATH"]}):
        command = ["bash", "-euc", 'source "$0" && env -0', str(script_path)]
        shown = subprocess.run(command, env=before, capture_output=True, text=True, check=True).stdout
        left = dict(line.split("=", 1) for line in shown.split("\0") if line)
        stated = json.loads(artifacts[ENV_JSON])
        assert {name: left[name] for name in VARIABLES if name in left} == stated["set"]
        assert sorted(stated["unset"] + list(stated["set"])) == sorted(VARIABLES)


RECIPES = """
import json
from transformer_engine.common import recipe
made = [recipe.NVFP4BlockScaling(), recipe.MXFP8BlockScaling(), recipe.Float8BlockScaling()]
print(json.dumps([{k: v for k, v in vars(r).items() if isinstance(v, (str, bool, type(None)))} for r in made]))
"""


@pytest.mark.parametrize("policy", ["two lines", "pretraining", "four over six", "fp8 blocks"])
def test_transformer_engines_recipes_are_as_decided_in_that_environment(policy: str, tmp_path: Path) -> None:
    """Its own package, imported in a fresh process under `env.sh` over a contrary environment."""
    contract = compiled(POLICIES[policy], "qwen3-30b-a3b")
    (tmp_path / "env.sh").write_text(emitted(contract)[ENV_SHELL])
    stale = {"NVTE_BACKWARD_OVERRIDE": "dequantized", "NVTE_NVFP4_4OVER6": "activations"}
    stale |= dict.fromkeys((NO_HADAMARD, NO_WEIGHT_2D, NO_STOCHASTIC_ROUNDING, ROW_SCALED, BLOCK_FP32), "1")
    command = ["bash", "-euc", 'source "$0" && exec "$@"', str(tmp_path / "env.sh"), sys.executable, "-c", RECIPES]
    environment = {**os.environ, **stale, "NVTE_PROJECT_BUILDING": "1"}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    nvfp4, mxfp8, blocks = json.loads(shown.splitlines()[-1])
    (precision,) = modules_of(contract).quantized
    override = None if precision.backward == "native" else precision.backward
    assert {nvfp4["backward_override"], mxfp8["backward_override"], blocks["backward_override"]} == {override}
    assert blocks["use_f32_scales"] is False
    if precision.recipe == "nvfp4":
        assert nvfp4["row_scaled_activation"] is precision.row_scaled
        assert nvfp4["disable_rht"] is not precision.hadamard
        assert nvfp4["disable_2d_quantization"] is not precision.weight_2d
        assert nvfp4["disable_stochastic_rounding"] is not precision.stochastic_rounding
        assert nvfp4["nvfp4_4over6"] == ("weights" if precision.four_over_six else "none")
        if precision.four_over_six:
            assert (nvfp4["nvfp4_4over6_e4m3_use_256"], nvfp4["nvfp4_4over6_err_mode"]) == ("none", "MSE")


def test_an_argument_file_is_words_only() -> None:
    """It stands in a command line as `$(cat te/megatron.args)`: no comment, no quote."""
    for policy in POLICIES.values():
        text = emitted(compiled(policy, "deepseek-v3"))["te/megatron.args"]
        assert all(line.startswith("--") and len(line.split()) <= 2 for line in text.splitlines())
        assert not set(text) & set("#'\"$\\")


def test_every_artifact_that_can_carry_it_has_the_digest() -> None:
    """All but the arguments, which are words only."""
    contract = compiled(INNER, "qwen3-30b-a3b", "pp=2")
    for path, text in emitted(contract).items():
        assert (contract.digest in text) == (path != "te/megatron.args")


def launched(folder: Path, contract: Contract, rank: int, *arguments: str, ranks: int = 8) -> Any:
    """The wrapper under bash, with a program that prints its arguments."""
    for artifact in backend.emit(contract):
        path = folder / artifact.path
        path.parent.mkdir(exist_ok=True)
        path.write_text(artifact.text)
        path.chmod(0o755 if artifact.executable else 0o644)
    environment = {"PATH": os.environ["PATH"], "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    command = [str(folder / "te" / "with_stage_recipe.sh"), "printf", "%s\n", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("rank, stage", [(0, 0), (1, 0), (2, 1), (3, 1), (6, 3), (7, 3)])
def test_the_wrapper_picks_the_recipe_of_a_ranks_stage(rank: int, stage: int, tmp_path: Path) -> None:
    """Eight ranks, four stages, stages outermost; the program gets its own arguments and that path."""
    done = launched(tmp_path, compiled(INNER, "qwen3-30b-a3b", "pp=4"), rank, "--micro-batch-size", "1 2")
    recipe = tmp_path / "te" / f"te_precision.stage{stage}.yaml"
    assert done.stdout.splitlines() == ["--micro-batch-size", "1 2", "--te-precision-config-file", str(recipe)]
    assert recipe.exists()


@pytest.mark.parametrize(
    "arguments, ranks",
    [
        (("--pipeline-model-parallel-size", "2"), 8),
        (("--pipeline-model-parallel-size=2",), 8),
        (("--use-tp-pp-dp-mapping",), 8),
        (("--decoder-first-pipeline-num-layers", "10"), 8),
        (("--num-layers-per-virtual-pipeline-stage", "2"), 8),
        (("--te-precision-config-file", "other.yaml"), 8),
        ((), 6),
    ],
)
def test_the_wrapper_refuses_a_job_of_other_stages(arguments: tuple[str, ...], ranks: int, tmp_path: Path) -> None:
    """It says which argument, and starts nothing."""
    done = launched(tmp_path, compiled(INNER, "qwen3-30b-a3b", "pp=4"), 0, *arguments, ranks=ranks)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("with_stage_recipe.sh: ")


def test_a_wrapper_is_known_to_the_letter() -> None:
    """What reads it back trusts the script it knows, and no other."""
    text = script(4, "abc")
    assert script_stages(text) == (4, "abc")
    assert script_stages(text.replace("RANK /", "RANK %")) is None


def test_the_cost_does_not_grow_with_the_experts() -> None:
    """A range of experts is one linear layer: nothing is written or asked for each."""
    contract = compiled(TWO_LINES, "deepseek-v3")
    assert len(modules_of(contract).precisions) < len(contract.entries)
    assert sum(map(len, emitted(contract).values())) < 10_000
