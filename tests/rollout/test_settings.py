"""The arguments and the environment of a server are read as the engine reads them."""

from __future__ import annotations

import json

import pytest
import yaml
from rollout.support import (
    BLOCKS,
    CONFIG,
    ENVIRONMENT,
    FOUR_BIT_WEIGHTS,
    INTEGERS,
    MXFP8,
    SERVER,
    SHELL,
    TWO_LINES,
    compiled,
    differing,
    emitted,
    refusal,
    served,
    with_variable,
)

from precc_sglang import backend
from precc_sglang.environment import VARIABLES


def test_shared_experts_are_folded_without_the_argument() -> None:
    """GLM-4 folds its shared expert into the routed ones unless told not to."""
    contract = compiled("@routed_experts: fp8_block\n", "glm-4.5-air")
    artifacts = emitted(contract)
    arguments = yaml.safe_load(artifacts[SERVER])
    assert arguments["disable-shared-experts-fusion"] is True
    artifacts[SERVER] = artifacts[SERVER].replace("disable-shared-experts-fusion: true\n", "")
    wrong = differing(contract, artifacts)
    assert wrong
    assert all("shared_experts" in name for name in wrong)


def test_another_expert_backend_is_found() -> None:
    """Per-token inputs are promised by two backends only."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[SERVER] = artifacts[SERVER].replace("flashinfer_trtllm_routed", "flashinfer_cutlass")
    assert differing(contract, artifacts)


def test_block_fp8_without_its_backends_is_found() -> None:
    """On Blackwell the kernels decide whether scales are powers of two."""
    contract = compiled(BLOCKS, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[SERVER] = artifacts[SERVER].replace("fp8-gemm-backend: deep_gemm", "fp8-gemm-backend: auto")
    assert all("self_attn" in name for name in differing(contract, artifacts))
    assert differing(contract, artifacts)


CHANGES: tuple[tuple[str, str | None, str, str], ...] = (
    ("SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION", None, TWO_LINES, "qwen3-30b-a3b"),
    ("FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH", None, TWO_LINES, "qwen3-30b-a3b"),
    ("TRTLLM_DISABLE_FP4_QUANT_FAST_MATH", "0", TWO_LINES, "qwen3-30b-a3b"),
    ("FLASHINFER_NVFP4_4OVER6", "1", TWO_LINES, "qwen3-30b-a3b"),
    ("SGLANG_FP8_IGNORED_LAYERS", "o_proj", MXFP8, "qwen3-30b-a3b"),
    ("SGLANG_NVFP4_CKPT_FP8_GEMM_IN_ATTN", "1", MXFP8, "deepseek-v3"),
    ("SGLANG_FORCE_MXFP8_BLOCK_CONVERT", "1", MXFP8, "qwen3-30b-a3b"),
    ("SGLANG_FORCE_FP8_MARLIN", "1", MXFP8, "qwen3-30b-a3b"),
    ("SGLANG_FORCE_FP8_MARLIN", "1", BLOCKS, "qwen3-30b-a3b"),
)


@pytest.mark.parametrize("name, value, policy, model", CHANGES)
def test_a_changed_variable_is_found(name: str, value: str | None, policy: str, model: str) -> None:
    """Each variable that the model of the engine knows changes a reading."""
    contract = compiled(policy, model)
    assert differing(contract, with_variable(emitted(contract), name, value))


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_that_is_neither_set_nor_unset_is_refused(name: str) -> None:
    """A stale value of the launching shell is the commonest silent fault."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    facts = json.loads(artifacts[ENVIRONMENT])
    facts["set"].pop(name, None)
    facts["unset"] = [other for other in facts["unset"] if other != name]
    assert name in refusal(contract, {**artifacts, ENVIRONMENT: json.dumps(facts)})[1]


def test_a_shell_file_that_differs_from_its_json_is_refused() -> None:
    """One of them is what the server starts with."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[SHELL] = artifacts[SHELL].replace("FAST_MATH=1", "FAST_MATH=0")
    assert refusal(contract, artifacts)[0] == "P502"


def test_a_config_without_the_argument_that_fits_is_read_online() -> None:
    """`--quantization mxfp8` on a checkpoint without a config quantizes while loading."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    wrong = differing(contract, {**emitted(contract), CONFIG: "null"})
    assert len(wrong) > contract.model.layers


def test_reading_says_which_file_and_entry_decided() -> None:
    """An author sees where to look."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    said = {reading.because for reading in backend.read_back(contract, emitted(contract))}
    assert "sglang/quantization_config.json, ignore 'model.layers.47.mlp.experts'" in said


@pytest.mark.parametrize("policy", [INTEGERS, FOUR_BIT_WEIGHTS])
def test_weight_only_formats_leave_inputs_in_bf16(policy: str) -> None:
    """And so does the reading."""
    contract = compiled(policy, "qwen3-30b-a3b")
    name = "model.layers.2.mlp.experts.{0..127}.up_proj"
    assert served(contract, emitted(contract), name).inputs == "bf16"
