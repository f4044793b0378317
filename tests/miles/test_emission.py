"""What is written for Miles, as a reviewer reads it."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest
from miles.support import BLOCKS, EXPRESSIBLE, MXFP8, NVFP4, compiled, emitted, errors, findings

from precc_miles import backend
from precc_miles.emission import CONVERT, ENV_JSON, ENV_SHELL, EXPORT, INLINE, RECIPES, ROLLOUT, TRAIN
from precc_miles.environment import VARIABLES

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    "name, policy, model",
    [("nvfp4", NVFP4, "qwen3-30b-a3b"), ("mxfp8", MXFP8, "deepseek-v3.2"), ("fp8_block", BLOCKS, "qwen3-8b")],
)
def test_the_artifacts_are_the_golden_ones(name: str, policy: str, model: str) -> None:
    """Reviewed by eye. The digest is left out, and the inline recipes, which are the YAML file's."""
    contract = compiled(policy, model)
    shown = "".join(f"==> {path}\n{_without_recipes(text)}" for path, text in emitted(contract).items())
    assert shown.replace(contract.digest, "DIGEST") == (GOLDEN / f"{name}-{model}.txt").read_text(encoding="utf-8")


def _without_recipes(text: str) -> str:
    return "".join(f"{line.partition(INLINE)[0]}\n" for line in text.splitlines())


@pytest.mark.parametrize("policy, model", EXPRESSIBLE)
def test_what_miles_can_say_compiles_and_reads_back_on_all_stages(policy: str, model: str) -> None:
    """No rule refuses it, and converter, trainer, live export and server do with every tensor what is decided."""
    assert not [finding.message for finding in errors(policy, model)]
    contract = compiled(policy, model)
    assert findings(contract, emitted(contract)) == ()
    assert len(backend.read_back(contract, emitted(contract))) == len(contract.entries)


@pytest.mark.parametrize("policy, model", EXPRESSIBLE)
def test_every_variable_is_set_or_unset_and_the_two_files_agree(policy: str, model: str) -> None:
    """None that decides precision survives from another run."""
    artifacts = emitted(compiled(policy, model))
    facts = json.loads(artifacts[ENV_JSON])
    assert {*facts["set"], *facts["unset"]} == set(VARIABLES)
    for name, value in facts["set"].items():
        assert f"export {name}={value}\n" in artifacts[ENV_SHELL]


def test_a_run_without_a_quantized_tensor_converts_nothing_and_has_no_recipe() -> None:
    """The checkpoint is the BF16 one, and no stage has a format."""
    artifacts = emitted(compiled("default: bf16\n", "deepseek-v3"))
    assert CONVERT not in artifacts
    assert RECIPES not in artifacts
    assert "format" not in artifacts[TRAIN]
    assert "quantization" not in artifacts[ROLLOUT]


def test_argument_files_hold_words_only() -> None:
    """No comment and no quote: each stands in a command line as `$(cat FILE)`."""
    artifacts = emitted(compiled(MXFP8, "deepseek-v3.2"))
    for path in (CONVERT, TRAIN, EXPORT, ROLLOUT):
        assert not set("#'\"$`;&|<>*?[]~\\") & set(artifacts[path]), path


def test_the_recipes_stand_in_the_trainers_arguments_and_beside_them() -> None:
    """Inline, since every machine of a run has the arguments, and not every one the file."""
    artifacts = emitted(compiled(NVFP4, "qwen3-30b-a3b"))
    inline = artifacts[TRAIN].split(INLINE)[1].strip()
    assert b64decode(inline).decode() == artifacts[RECIPES]


def test_files_do_not_grow_with_the_number_of_experts() -> None:
    """128 experts a layer, and 512, in as many lines of recipes and arguments."""
    few, many = (emitted(compiled(NVFP4, model)) for model in ("qwen3-30b-a3b", "qwen3-next-80b-a3b"))
    assert few[RECIPES].count("\n") == many[RECIPES].count("\n")
    assert few[ENV_SHELL].count("\n") == many[ENV_SHELL].count("\n")


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3", "glm-4.7"])
def test_the_backend_emits_the_same_twice(model: str) -> None:
    """Nothing depends on the order of sets, on the time or on the place."""
    contract = compiled(NVFP4, model)
    assert backend.emit(contract) == backend.emit(contract)
