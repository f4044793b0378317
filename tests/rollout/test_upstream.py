"""SGLang itself judges compiles: it builds, checks and loads them as the contract says, and sees what was changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rollout.support import (
    BLOCKS,
    CONFIG,
    FOUR_BIT_WEIGHTS,
    INTEGERS,
    MIXED,
    MXFP8,
    POLICIES,
    REFUSED,
    SERVER,
    SHELL,
    SMALL,
    TWO_LINES,
    bound,
    compiled,
    config_of,
    edited,
    emitted,
    small_model,
)

import precc_converter
from precc.backend import EngineUnavailable, Judgement, Unsupported
from precc.contract import Contract
from precc_sglang.environment import VARIABLES
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.upstream import Judge, available
from precc_sglang.upstream.judging import prepare
from precc_sglang.upstream.wire import Seen

pytestmark = pytest.mark.slow

PLAN = "converter/plan.json"


def planned(contract: Contract) -> dict[str, str]:
    """The artifacts, and the converter's plan."""
    plan = {artifact.path: artifact.text for artifact in precc_converter.backend.emit(contract)}
    return {**emitted(contract), **plan}


def messages(judgement: Judgement) -> list[str]:
    """What was found, by code."""
    return [f"{finding.code} {finding.message}" for finding in judgement.findings]


def first(judge: Judge, contract: Contract, artifacts: Mapping[str, str]) -> str:
    """The first thing that is found in artifacts, of which not all agree."""
    judgement = judge(contract, artifacts)
    assert judgement.agree < judgement.tensors
    return messages(judgement)[0]


# --- what is emitted is what SGLang runs -------------------------------------------------------------

PAIRS = [(policy, model) for policy in POLICIES for model in SMALL if (policy, model) not in REFUSED]
CASES = [pair for number, pair in enumerate(PAIRS) if pair[1] in ("qwen3_moe", "deepseek_v3") or number % 3 == 0]
"""Every policy on two families, and on a third of the others; `proof` judges the ready policies on all of them."""


@pytest.mark.parametrize("policy, model", CASES)
def test_sglang_runs_what_was_compiled(judge: Judge, policy: str, model: str, tmp_path: Path) -> None:
    """Every policy on every family, its draft model among it, loaded after the converter's plan."""
    contract = bound(POLICIES[policy], small_model(model, tmp_path))
    judgement = judge(contract, planned(contract))
    assert messages(judgement) == []
    assert judgement.agree == judgement.tensors == sum(tensor.count for tensor in contract.tensors)
    assert len(judgement.checks) == 4


@pytest.mark.parametrize("policy", ["mxfp8", "mix with nvfp4", "fp8 blocks"])
@pytest.mark.parametrize("model", ["deepseek_v3", "glm4_moe"])
def test_a_quantized_draft_model_runs_as_compiled(judge: Judge, policy: str, model: str, tmp_path: Path) -> None:
    """The next-token layer is built by a class of its own, which asks under other names."""
    form = "fp8_block" if policy == "fp8 blocks" else "mxfp8"
    drafted = f"{POLICIES[policy]}@attention in @mtp: {form}\nkv_b_proj? in @mtp: bf16\n"
    contract = bound(drafted, small_model(model, tmp_path))
    judgement = judge(contract, planned(contract))
    assert messages(judgement) == []
    assert "of its draft model" in judgement.checks[2]


STATIC = "@routed_experts: weight nvfp4, input nvfp4 per_tensor static, train bf16\n"
OTHERS = [
    ("qwen3_moe", STATIC),
    ("qwen3_moe", "@routed_experts: nvfp4 per_token four_over_six mae max 256\n"),
    ("qwen3", "lm_head: weight nvfp4, train bf16\n"),
    ("deepseek_v3", "default: mxfp8\n@routed_experts: fp8_block\nkv_b_proj: bf16\n"),
    ("glm4_moe", "@routed_experts: mxfp8\nkv_cache: fp8\n"),
]


@pytest.mark.parametrize("model, policy", OTHERS)
def test_rarer_formats_run_as_compiled(judge: Judge, model: str, policy: str, tmp_path: Path) -> None:
    """Stored input scales, adaptive block scales, a quantized head, two formats of one size, an FP8 KV cache."""
    contract = bound(policy, small_model(model, tmp_path))
    judgement = judge(contract, planned(contract))
    assert messages(judgement) == []
    assert judgement.agree == judgement.tensors


FULL = [
    (TWO_LINES, "qwen3-30b-a3b", ""),
    (MIXED, "qwen3-30b-a3b", "tp=8 ep=4 dp=2"),
    (MXFP8, "kimi-k2", ""),
    (BLOCKS, "qwen3-0.6b", "gpu=h100"),
    (FOUR_BIT_WEIGHTS, "moonlight-16b-a3b", ""),
    (INTEGERS, "qwen2.5-7b", ""),
    ("default: mxfp8\nkv_b_proj: bf16\n", "deepseek-v3.2", ""),
    (MXFP8, "glm-5.2", ""),
    (BLOCKS, "minimax-m2.7", "gpu=h100"),
]


@pytest.mark.parametrize("policy, model, layout", FULL)
def test_full_size_models_are_judged_at_their_size(judge: Judge, policy: str, model: str, layout: str) -> None:
    """Built without memory; what is loaded is a small model with all of its layers."""
    contract = compiled(policy, model, layout)
    judgement = judge(contract, planned(contract))
    assert messages(judgement) == []
    assert judgement.agree == judgement.tensors == sum(tensor.count for tensor in contract.tensors)


@pytest.mark.parametrize("model", list(SMALL))
def test_modules_ask_under_the_names_that_are_emitted(judge: Judge, model: str, tmp_path: Path) -> None:
    """Every module that asks the quantization config does so with the prefix of its row in the table."""
    contract = bound(POLICIES["fp8 channels"], small_model(model, tmp_path))
    seen = look(judge, contract, tmp_path)
    choice = choice_of(contract)
    assert choice is not None
    asking = [module for module in choice.modules if module.kind is not Kind.NEVER and not module.draft]
    asked = {built.asked for built in seen.modules.values()}
    unasked = {module.prefix for module in asking} - asked
    assert unasked <= {"lm_head"}
    assert len(asking) > contract.model.layers


def look(judge: Judge, contract: Contract, folder: Path) -> Seen:
    """What the worker sees of a contract's artifacts."""
    from precc.contract.shrinking import shrunken

    choice = choice_of(contract)
    assert choice is not None
    job = prepare(contract, choice, shrunken(contract), emitted(contract), folder)
    seen: Seen = judge.worker.ask("judge", job)
    assert seen.stop is None
    return seen


def test_contrary_variables_do_not_reach_the_engine(judge: Judge, tmp_path: Path) -> None:
    """`env.sh` is sourced over all of them; what it unsets is gone, what it sets is read as such."""
    contract = bound(TWO_LINES, small_model("qwen3_moe", tmp_path))
    seen = look(judge, contract, tmp_path)
    assert seen.misread == {}
    assert seen.environment == {
        "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION": "1",
        "FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH": "1",
        "TRTLLM_DISABLE_FP4_QUANT_FAST_MATH": "1",
    }


# --- what it does otherwise --------------------------------------------------------------------------


def test_the_llama_class_loses_the_scales_that_a_rule_refuses(judge: Judge, tmp_path: Path) -> None:
    """P702 is a fact of this version: the weights load, the scales do not, and nothing is said."""
    contract = bound(MXFP8, small_model("llama", tmp_path))
    found = messages(judge(contract, planned(contract)))
    assert len(found) == 2
    assert "would never read `weight_scale_inv` of" in found[0]
    assert "would load nothing into `weight_scale_inv` of" in found[1]


def test_a_mixtral_mix_serves_its_experts_otherwise_as_a_rule_says(judge: Judge, tmp_path: Path) -> None:
    """One module an expert: NVFP4 has a static scale there."""
    contract = bound(TWO_LINES, small_model("mixtral", tmp_path))
    assert "as nvfp4_static, inputs static, exact math; the contract says nvfp4_token" in first(
        judge, contract, emitted(contract)
    )


def test_a_layer_taken_out_of_a_mix_is_seen(judge: Judge, tmp_path: Path) -> None:
    """The engine takes what has no key for unquantized."""
    contract = bound(MIXED, small_model("qwen3_moe", tmp_path))
    layers = config_of(contract)["quantized_layers"]
    del layers["model.layers.2.self_attn.o_proj"]
    judgement = judge(contract, edited(planned(contract), CONFIG, quantized_layers=layers))
    (message,) = messages(judgement)
    assert message == (
        "P511 SGLang 0.5.23 would run `model.layers.2.self_attn.o_proj` as unquantized, inputs unquantized; "
        "the contract says mxfp8, inputs 1×32"
    )
    assert judgement.agree == judgement.tensors - 1


def test_codes_in_an_excluded_layer_are_seen(judge: Judge, tmp_path: Path) -> None:
    """The loader would cast them to BF16 and drop the scale; no parameter is left unwritten."""
    contract = bound(MXFP8, small_model("qwen3", tmp_path))
    artifacts = planned(contract)
    plan = json.loads(artifacts[PLAN])
    line = next(line for line in plan["tensors"] if line["tensor"] == "model.layers.3.self_attn.o_proj.weight")
    scale = {"name": "model.layers.3.self_attn.o_proj.weight_scale_inv", "dtype": "U8", "shape": [256, 8]}
    line["outputs"] = [{**line["outputs"][0], "dtype": "F8_E4M3"}, scale]
    found = messages(judge(contract, {**artifacts, PLAN: json.dumps(plan)}))
    assert found == [
        "P511 SGLang 0.5.23 would convert `weight` of `model.layers.3.self_attn.o_proj` from F8_E4M3 to BF16; "
        "the contract says bf16",
        "P511 SGLang 0.5.23 would never read `weight_scale_inv` of `model.layers.3.self_attn.o_proj` "
        "which the checkpoint holds",
    ]


def test_bf16_bytes_in_a_quantized_layer_are_seen(judge: Judge, tmp_path: Path) -> None:
    """They would be cast to FP8, and the scale stay as it was allocated."""
    contract = bound(MXFP8, small_model("qwen3", tmp_path))
    artifacts = planned(contract)
    plan = json.loads(artifacts[PLAN])
    line = next(line for line in plan["tensors"] if ".o_proj" in line["tensor"] and "quantizer" in line)
    line["outputs"] = [{**line["outputs"][0], "dtype": "BF16"}]
    found = messages(judge(contract, {**artifacts, PLAN: json.dumps(plan)}))
    assert len(found) == 3
    assert "would find no `weight_scale_inv` of" in found[0]
    assert "from BF16 to F8_E4M3; the contract says mxfp8" in found[1]
    assert "would load nothing into `weight_scale_inv` of" in found[2]


def test_a_scale_under_another_name_is_seen(judge: Judge, tmp_path: Path) -> None:
    """It is not read, and its parameter stays as it was allocated."""
    contract = bound(MIXED, small_model("qwen3_moe", tmp_path))
    artifacts = planned(contract)
    renamed = artifacts[PLAN].replace("o_proj.weight_scale_inv", "o_proj.weight_scale")
    found = messages(judge(contract, {**artifacts, PLAN: renamed}))
    assert any("would never read `weight_scale` of" in message for message in found)
    assert any("would load nothing into `weight_scale_inv` of" in message for message in found)


def test_a_tensor_that_the_plan_forgets_is_seen(judge: Judge, tmp_path: Path) -> None:
    """Its part of a fused parameter stays poisoned."""
    contract = bound(TWO_LINES, small_model("qwen3_moe", tmp_path))
    artifacts = planned(contract)
    plan = json.loads(artifacts[PLAN])
    plan["tensors"] = [line for line in plan["tensors"] if ".k_proj" not in line["tensor"]]
    found = messages(judge(contract, {**artifacts, PLAN: json.dumps(plan)}))
    assert any("would find no `weight` of" in message and "k_proj" in message for message in found)
    assert any("would load nothing into `weight` of" in message for message in found)


ARGUMENTS = (
    ("kv-cache-dtype: bf16", "kv-cache-dtype: fp8_e4m3", "as fp8 KV cache; the contract says bf16 KV cache"),
    ("\ndtype: bfloat16", "\ndtype: float16", "F16"),
    ("quantization: modelopt_mixed\n", "", "takes `quantization` from server.yaml as None"),
    ("flashinfer_trtllm_routed", "triton", "as the expert backend triton may"),
    ("kv-cache-dtype: bf16", "kv-cache-dtype: bf17", "P512 SGLang 0.5.23 stops while parsing server.yaml: ValueError"),
    ('"0:', '"0:7', "takes `weight-version` from server.yaml as"),
)


@pytest.mark.parametrize("old, new, said", ARGUMENTS)
def test_another_argument_is_seen(judge: Judge, old: str, new: str, said: str, tmp_path: Path) -> None:
    """By its effect on the tensors, or as an argument; what the parser refuses is quoted."""
    contract = bound(MIXED, small_model("qwen3_moe", tmp_path))
    artifacts = emitted(contract)
    assert old in artifacts[SERVER]
    assert said in first(judge, contract, {**artifacts, SERVER: artifacts[SERVER].replace(old, new)})


def test_every_variable_that_env_forgets_is_seen(judge: Judge, tmp_path: Path) -> None:
    """Contrary values of the launching shell stay, and SGLang reads each as such."""
    contract = bound(TWO_LINES, small_model("qwen3_moe", tmp_path))
    found = messages(judge(contract, {**emitted(contract), SHELL: ""}))
    read = {message.split(" reads ")[1].split()[0] for message in found if " reads " in message}
    assert read == set(VARIABLES)


def test_a_shell_file_that_fails_is_quoted(judge: Judge, tmp_path: Path) -> None:
    """A server would not be started by it."""
    contract = bound(TWO_LINES, small_model("qwen3_moe", tmp_path))
    message = first(judge, contract, {**emitted(contract), SHELL: "export A=$NOT_THERE\n"})
    assert message.startswith("P512 SGLang 0.5.23 stops while sourcing env.sh: RuntimeError")
    assert "NOT_THERE" in message


def test_per_token_activations_are_the_engines_own_flag(judge: Judge, tmp_path: Path) -> None:
    """Without the variable, the experts' method scales statically."""
    contract = bound(TWO_LINES, small_model("qwen3_moe", tmp_path))
    artifacts = emitted(contract)
    text = artifacts[SHELL].replace("PER_TOKEN_ACTIVATION=1", "PER_TOKEN_ACTIVATION=0")
    found = messages(judge(contract, {**artifacts, SHELL: text}))
    assert any("as nvfp4_static, inputs static" in message for message in found)


def test_the_engines_own_words_are_quoted(judge: Judge, tmp_path: Path) -> None:
    """It stops on a configuration that it cannot read."""
    contract = bound(MIXED, small_model("qwen3_moe", tmp_path))
    message = first(judge, contract, edited(emitted(contract), CONFIG, quant_algo="MIXED"))
    assert message.startswith("P512 SGLang 0.5.23 stops while building the model: ValueError: ModelOptMixed")


@pytest.mark.parametrize("path, text", [(CONFIG, "{"), (CONFIG, None), (SERVER, None), (PLAN, "[]"), (PLAN, "{")])
def test_files_that_are_none_are_refused(judge: Judge, path: str, text: str | None, tmp_path: Path) -> None:
    """Before anything is started for them."""
    contract = bound(MIXED, small_model("qwen3_moe", tmp_path))
    artifacts = planned(contract)
    changed = {name: kept for name, kept in artifacts.items() if name != path}
    with pytest.raises(Unsupported) as caught:
        judge(contract, changed if text is None else {**changed, path: text})
    assert path in caught.value.findings[0].message


# --- which SGLang may judge --------------------------------------------------------------------------


def test_another_version_than_the_installed_one_judges_nothing() -> None:
    """The contract's own version is said, and what to install."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    stated = replace(contract, rollout=replace(contract.rollout, sglang="0.5.16"))
    with pytest.raises(EngineUnavailable) as caught:
        Judge()(stated, emitted(contract))
    assert "0.5.16" in str(caught.value)
    assert "0.5.23" in str(caught.value)
    assert "`--rollout sglang=0.5.23`, or install 0.5.16: docs/verification.md" in caught.value.help


def test_an_engine_that_is_not_installed_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its distribution is looked up, not imported."""
    monkeypatch.setattr(available, "DISTRIBUTIONS", {"sglang": "sglang-that-nobody-installed"})
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    with pytest.raises(EngineUnavailable) as caught:
        Judge()(contract, emitted(contract))
    assert str(caught.value) == "SGLang is not installed"
    assert "docs/verification.md, `Installing the engines`" in caught.value.help
