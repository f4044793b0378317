"""The judge can say no: artifacts that would run otherwise, that Megatron does not take, or that it is no judge of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from te.engines import INSTALLED, MEGATRONS, Judges, in_turn
from te.support import (
    ADAPTIVE,
    BLOCKS,
    INNER,
    MIXED,
    MTP,
    MXFP8,
    PRETRAINING,
    TWO_BACKWARDS,
    TWO_LINES,
    compiled,
    emitted,
    findings,
)

from precc.backend import EngineUnavailable, Judgement
from precc_te import backend
from precc_te.environment import RECIPE_VARIABLES
from precc_te.modules import modules_of
from precc_te.plan import needs_factory, plan
from precc_te.upstream.available import judging, modelled_version
from precc_te.upstream.judge import Judge, write
from precc_te.upstream.recipes import CONTRARY, stale
from precc_te.upstream.wire import Engines
from precc_te.versions import ENGINES

YAML, ARGUMENTS, SHELL, JSON = "te/te_precision.yaml", "te/megatron.args", "te/env.sh", "te/env.json"
TWO_ROLES = "default: mxfp8\n@routed_experts?: mxfp8, backward dequantized\n"
Change = Callable[[dict[str, str]], None]


def swap(path: str, old: str, new: str) -> Change:
    """This replaces the first place of a text that must be there."""

    def change(artifacts: dict[str, str]) -> None:
        assert old in artifacts[path]
        artifacts[path] = artifacts[path].replace(old, new, 1)

    return change


OTHERWISE: dict[str, tuple[str, Change, str]] = {
    "a pattern of another component": (
        TWO_LINES, swap(YAML, "mlp.experts.*linear_fc1", "mlp.expert.*linear_fc1"), "as bf16; the contract says nvfp4"
    ),
    "a pattern for grouped experts only": (
        TWO_LINES, swap(YAML, "experts.*linear_fc1", "experts.linear_fc1"), "sequential experts"
    ),
    "a pattern for one expert": (
        TWO_LINES, swap(YAML, "experts.*linear_fc1", "experts.*[!1].linear_fc1"), "as bf16"
    ),
    "a matcher that is not enabled": (TWO_LINES, swap(YAML, "enabled: true, ", ""), "as bf16"),
    "no default": (
        MXFP8, swap(YAML, 'everything_else: {type: glob, enabled: true, pattern: "*"', 'everything_else: {type: glob, '
        'enabled: true, pattern: "x"'), "as mxfp8, backward native; the contract says bf16"
    ),
    "no override in MTP": (MTP, swap(YAML, ", override_nonquantized_autocast: true", ""), "as bf16; the contract says"),
    "an override of layers in BF16": (
        MXFP8, swap(YAML, 'fp8_format: "e4m3"', 'fp8_format: "e4m3", override_nonquantized_autocast: true'),
        "as mxfp8, backward native; the contract says bf16",
    ),
    "gradients in E5M2": (MXFP8, swap(YAML, '"e4m3"', '"hybrid"'), "E5M2 gradients"),
    "one layer fewer in BF16": (
        MXFP8, swap(ARGUMENTS, "--num-layers-at-end-in-bf16 2", "--num-layers-at-end-in-bf16 1"), "layers.10."
    ),
    "no format": (MXFP8, swap(ARGUMENTS, "--fp8-format e4m3\n", ""), "as bf16; the contract says mxfp8"),
    "a variable that is not set": (
        TWO_LINES, swap(SHELL, "export NVTE_NVFP4_ROW_SCALED_ACTIVATION=1\n", ""), "as nvfp4, per tensor, backward"
    ),
    "a variable that is contradicted": (
        TWO_LINES, swap(SHELL, "DISABLE_RHT=1", "DISABLE_RHT=0"), "Hadamard"
    ),
    "a variable that is not unset": (MXFP8, swap(SHELL, "unset NVTE_BACKWARD_OVERRIDE\n", ""), "backward dequantized"),
    "a variable of the other file": (
        TWO_LINES, swap(JSON, '"NVTE_BACKWARD_OVERRIDE": "high_precision"', '"NVTE_BACKWARD_OVERRIDE": "dequantized"'),
        "under te/env.json",
    ),
    "a backward variable beside factories": (
        TWO_BACKWARDS.replace("24", "6"),
        swap(SHELL, "unset NVTE_BACKWARD_OVERRIDE", "export NVTE_BACKWARD_OVERRIDE=dequantized"), "backward dequantized"
    ),
    "attention of another run": (MXFP8, swap(SHELL, "unset NVTE_DPA_FP8_RECIPE\n", ""), "keeps NVTE_DPA_FP8_RECIPE="),
    "evaluation apart": (
        MXFP8, swap(YAML, '"e4m3"}}', '"e4m3"}, evaluation_recipe: {}}'), "in evaluation"
    ),
    "weights in FP32": (MXFP8, swap(ARGUMENTS, "--bf16\n", ""), "with weights in float32"),
    "another factory": (
        TWO_BACKWARDS.replace("24", "6"),
        swap(YAML, "factories.nvfp4_per_token_dequantized", "factories.nvfp4_per_token_high_precision"),
        "as nvfp4, per token, backward high_precision; the contract says nvfp4, per token, backward dequantized",
    ),
}  # fmt: skip


WHOLE = ("no format", "gradients in E5M2", "weights in FP32")
"""The cases in which nothing that was quantized, or nothing at all, agrees."""


@pytest.mark.parametrize("case, megatron_core", in_turn(OTHERWISE))
def test_what_would_run_otherwise_is_a_difference(
    case: str, megatron_core: str, small: dict[str, str], judges: Judges
) -> None:
    """One finding P511 for each group that differs alike: the engine, what it would run, what the contract says."""
    policy, change, words = OTHERWISE[case]
    contract = compiled(policy, small["latent"])
    artifacts = emitted(contract)
    change(artifacts)
    judgement = judges(megatron_core)(contract, artifacts)
    assert {finding.code for finding in judgement.findings} == {"P511"}
    assert any(words in f"{finding.message} {finding.help}" for finding in judgement.findings)
    if "keeps" not in words:
        assert 0 < judgement.agree < judgement.tensors or case in (
            "no format",
            "gradients in E5M2",
            "weights in FP32",
            "layers without recipes",
        )
        assert (
            f"Megatron-Core {megatron_core} with TransformerEngine 2.20.2 would run `" in judgement.findings[0].message
        )
    assert findings(contract, artifacts) != ()


def missing(path: str) -> Change:
    """This leaves one artifact out."""
    return lambda artifacts: artifacts.pop(path) and None


STOPS: dict[str, tuple[str, Change, str]] = {
    "a field that no recipe has": (MXFP8, swap(YAML, "fp8_format", "fp9_format"), "ValueError"),
    "a recipe that does not exist": (MXFP8, swap(YAML, '_recipe: "mxfp8"', '_recipe: "mxfp9"'), "Unhandled fp8 recipe"),
    "a config that does not exist": (MXFP8, swap(YAML, "config: mxfp8_native}", "config: other}"), "KeyError: 'other'"),
    "another type of matcher": (MXFP8, swap(YAML, "type: glob", "type: regex"), "NotImplementedError"),
    "a factory that does not exist": (
        TWO_ROLES, swap(YAML, "factories.mxfp8_dequantized", "factories.mxfp8_deq"), "mxfp8_deq"
    ),
    "both formats": (MXFP8, swap(ARGUMENTS, "--fp8-format e4m3", "--fp8-format e4m3\n--fp4-format e2m1"), "fp4"),
    "an argument that does not exist": (MXFP8, swap(ARGUMENTS, "--bf16", "--bf17"), "unrecognized arguments: --bf17"),
    "more layers than FP8 allows": (
        MXFP8, swap(ARGUMENTS, "end-in-bf16 2", "end-in-bf16 99"), "num_layers_at_end_in_bf16"
    ),
    "no recipe file": (MXFP8, missing(YAML), "FileNotFoundError"),
    "no arguments": (MXFP8, missing(ARGUMENTS), "FileNotFoundError"),
    "no environment": (MXFP8, missing(SHELL), "No such file"),
    "no environment for launchers": (MXFP8, missing(JSON), "FileNotFoundError"),
    "a backward mode that does not exist": (
        TWO_LINES, swap(SHELL, "OVERRIDE=high_precision", "OVERRIDE=high"), "NVTE_BACKWARD_OVERRIDE must be unset"
    ),
    "a stage's recipe missing": (INNER, missing("te/te_precision.stage1.yaml"), "FileNotFoundError"),
    "a wrapper of other stages": (INNER, swap("te/with_stage_recipe.sh", "stages=2", "stages=3"), "not 2"),
}  # fmt: skip


@pytest.mark.parametrize("case, megatron_core", in_turn(STOPS))
def test_what_megatron_does_not_take_is_quoted(
    case: str, megatron_core: str, small: dict[str, str], judges: Judges
) -> None:
    """One finding P512 with the engine's own words in a line; nothing agrees."""
    policy, change, words = STOPS[case]
    contract = compiled(policy, small["sparse"], "pp=2")
    artifacts = emitted(contract)
    change(artifacts)
    judgement = judges(megatron_core)(contract, artifacts)
    stops = [finding.message for finding in judgement.findings if finding.code == "P512"]
    assert any(words in message for message in stops)
    assert all("\n" not in message for message in stops)
    assert judgement.agree == 0
    assert findings(contract, artifacts) != ()


@pytest.mark.parametrize("megatron_core", MEGATRONS)
def test_layers_that_no_recipe_reaches_are_a_difference(
    megatron_core: str, small: dict[str, str], judges: Judges
) -> None:
    """Megatron's local layers have no recipes: each tensor of the contract is missing among those that do."""
    contract = compiled(MXFP8, small["dense"])
    artifacts = emitted(contract)
    swap(ARGUMENTS, "impl transformer_engine", "impl local")(artifacts)
    judgement = judges(megatron_core)(contract, artifacts)
    assert judgement.agree == 0
    assert {finding.code for finding in judgement.findings} == {"P511"}
    assert all("as what no recipe can reach; the contract says" in finding.message for finding in judgement.findings)


def test_weights_that_are_kept_quantized_are_a_difference(small: dict[str, str], judges: Judges) -> None:
    """Under parameter gather Megatron builds each layer of its FP8 mode with no weight in BF16."""
    contract = compiled(BLOCKS, small["latent"])
    artifacts = emitted(contract)
    artifacts[ARGUMENTS] += "--fp8-param-gather\n"
    judgement = judges()(contract, artifacts)
    assert judgement.agree == 0
    assert all("on a weight that is kept quantized" in finding.message for finding in judgement.findings)


def test_a_difference_counts_tensors_and_names_places(small: dict[str, str], judges: Judges) -> None:
    """As read-back says it: names with their ranges, the number of tensors, and where to look."""
    contract = compiled(TWO_LINES, small["sparse"])
    artifacts = emitted(contract)
    swap(YAML, "experts.*linear_fc2", "experts.linear_fc2")(artifacts)
    (finding,) = judges()(contract, artifacts).findings
    assert finding.message == (
        "Megatron-Core 0.16.1 with TransformerEngine 2.20.2 would run "
        "`model.layers.{0..11}.mlp.experts.{0..1}.down_proj` (24 tensors) as bf16; "
        "the contract says nvfp4, per token, backward high_precision"
    )
    assert finding.help == (
        "seen at (pp=1, sequential experts), (pp=2, sequential experts) and (pp=2 vpp=2, sequential experts); "
        "the policy decides it in p.prec:2: experts.*: nvfp4 per_token"
    )


@pytest.mark.parametrize("te", ["2.20.2", "2.17.0"])
@pytest.mark.parametrize("policy", [TWO_LINES, PRETRAINING, ADAPTIVE, BLOCKS, MIXED, MXFP8, "default: bf16\n"])
def test_the_recipe_classes_are_as_decided_in_a_fresh_process(
    policy: str, te: str, small: dict[str, str], judges: Judges, tmp_path: Path
) -> None:
    """Each recipe that a contract uses has every field that it decides, over a contrary value of every variable."""
    contract = compiled(policy, small["sparse"])
    write(tmp_path, emitted(contract))
    made = plan(contract)
    process = judges(te=te).process(tmp_path / SHELL, made.process.variables())
    assert process.problem == ""
    for wanted in modules_of(contract).quantized:
        assert not needs_factory(wanted, made.process)
        assert process.recipes[wanted.recipe] == wanted
    left = {name: value for name, value in process.environment.items() if name in stale({})}
    assert left == made.process.variables()


def test_the_contrary_environment_is_contrary() -> None:
    """Every variable of the recipes has two values, and gets the one that is not wanted."""
    assert set(RECIPE_VARIABLES) <= set(CONTRARY)
    for wanted in (dict.fromkeys(RECIPE_VARIABLES, "1"), dict.fromkeys(RECIPE_VARIABLES, "0"), {}):
        assert not {name for name, value in stale(wanted).items() if wanted.get(name) == value}


HERE = Engines(INSTALLED["megatron_core"], INSTALLED["te"])
UNAVAILABLE: dict[str, tuple[str, Mapping[str, str], str, str]] = {
    "no Megatron": ("", {"megatron_core": ""}, "Megatron-Core is not installed here", "pip install --no-deps megatron"),
    "neither": ("", {"megatron_core": "", "te": ""}, "Megatron-Core and TransformerEngine are not", "pip install"),
    "a Megatron that does not load": ("", {"problem": "ImportError: x"}, "does not load: ImportError", "pip install"),
    "an unmodelled version": (
        "", {"megatron_core": "0.15.0"}, "Megatron-Core 0.15.0 is installed, and precc knows the rules of 0.20,",
        "megatron-core==0.19.2",
    ),
    "a version between modelled ones": ("", {"te": "2.20.1"}, "TransformerEngine 2.20.1 is installed", "2.20.2"),
    "another version than stated": (
        "megatron_core=0.19", {}, "the artifacts are for Megatron-Core 0.19, and 0.16.1 is installed",
        "--train megatron_core=0.16.1",
    ),
    "another TransformerEngine than stated": (
        "te=2.19", {}, "the artifacts are for TransformerEngine 2.19, and 2.20.2 is installed", "--train te=2.20.2"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNAVAILABLE)
def test_an_engine_that_is_no_judge_says_so(case: str, small: dict[str, str]) -> None:
    """What is installed, what the artifacts are for, and what to install or to state."""
    train, installed, message, help = UNAVAILABLE[case]
    contract = compiled(TWO_LINES, small["sparse"], train)
    with pytest.raises(EngineUnavailable) as unavailable:
        judging(contract, replace(HERE, **installed))
    assert message in str(unavailable.value)
    assert help in unavailable.value.help


def test_artifacts_for_the_newest_are_judged_by_a_version_that_gets_the_same(small: dict[str, str]) -> None:
    """A contract that states none is judged as one that states the installed ones."""
    stated = judging(compiled(TWO_LINES, small["sparse"]), Engines("0.16.1", "2.19.0"))
    assert (stated.train.megatron_core, stated.train.te) == ("0.16.1", "2.19")


@pytest.mark.parametrize(
    "engine, installed, modelled",
    [("te", "2.19.0", "2.19"), ("te", "2.20.2", "2.20.2"), ("te", "2.20.1", None), ("te", "2.1", None),
     ("megatron_core", "0.20.0", "0.20"), ("megatron_core", "0.19.2", "0.19.2"), ("megatron_core", "0.19.20", None)],
)  # fmt: skip
def test_an_installed_version_is_a_modelled_one_or_none(engine: str, installed: str, modelled: str | None) -> None:
    """A modelled `2.19` is every 2.19.x, a modelled `2.20.2` only itself."""
    assert modelled_version(installed, ENGINES[engine]) == modelled


def test_the_backend_judges(small: dict[str, str]) -> None:
    """What `precc verify --upstream` calls, with the installed versions."""
    contract = compiled(MXFP8, small["dense"])
    judgement: Judgement = backend.upstream(contract, emitted(contract))
    assert (judgement.engines, judgement.findings) == (INSTALLED, ())
    assert judgement.agree == judgement.tensors == 12 * 7


def test_an_engine_that_does_not_load_is_no_judge(small: dict[str, str], tmp_path: Path) -> None:
    """A Megatron before the installed one on the path, as a caller's PYTHONPATH puts it, that raises."""
    (tmp_path / "megatron" / "core").mkdir(parents=True)
    (tmp_path / "megatron" / "core" / "__init__.py").write_text("raise RuntimeError('built for another machine')\n")
    contract = compiled(MXFP8, small["dense"])
    with Judge([tmp_path]) as judge, pytest.raises(EngineUnavailable) as unavailable:
        judge(contract, emitted(contract))
    assert "does not load: RuntimeError: built for another machine" in str(unavailable.value)


def test_a_stated_layout_that_cannot_be_built_is_said(small: dict[str, str], judges: Judges) -> None:
    """Twelve layers are no two stages of five chunks; the recipes depend on no layer, and others are judged."""
    contract = compiled(TWO_LINES, small["sparse"], "pp=2 vpp=5")
    judgement = judges()(contract, emitted(contract))
    assert judgement.agree == judgement.tensors
    assert "not at the stated pp=2 vpp=5, in which the layers do not divide" in judgement.checks


def test_a_model_that_no_layout_can_build_is_not_judged(small: dict[str, str], judges: Judges) -> None:
    """A recipe for single layers holds in its own layout only, which has no such virtual chunks."""
    contract = compiled(INNER, small["sparse"], "vpp=5")
    with pytest.raises(EngineUnavailable) as unavailable:
        judges()(contract, {})
    assert "no model of 12 layers at pp=1 vpp=5" in str(unavailable.value)


def test_nothing_starts_before_it_is_needed() -> None:
    """A judge that is not asked starts no process."""
    with Judge() as judge:
        assert not judge.worker.is_running


def test_a_stated_layout_that_megatron_refuses_is_judged(small: dict[str, str], judges: Judges) -> None:
    """More BF16 layers at one end than a stage has, under FP8: the artifacts stop there, whatever pp=1 does."""
    contract = compiled("default: mxfp8\nlayers[-5:]: bf16\n", small["dense"], "pp=4")
    judgement = judges()(contract, emitted(contract))
    assert judgement.agree == 0
    assert any("must be between 0 and number of layers per pipeline stage (3)" in f.message for f in judgement.findings)
