"""Kimi-K3 and Step-3.7, two classes whose loaders take what was released and little else: judged by SGLang."""

from __future__ import annotations

import json

import pytest
from rollout.support import CONFIG, config_of, emitted, findings, four_layers

from precc_sglang.reading import read_back
from precc_sglang.served import decides
from precc_sglang.upstream import Judge

KIMI, STEP = "kimi-k3", "step-3.7-flash"

MXFP4 = "@routed_experts: weight mxfp4, train bf16\n"
STATIC = "weight nvfp4 per_tensor, input nvfp4 per_tensor static, train bf16"
WEIGHTS = "weight nvfp4, input bf16, train bf16"
CHANNELS = "weight fp8 per_channel, input fp8 per_token, train bf16"
TENSOR = "weight fp8 per_tensor, input fp8 per_tensor static, train bf16"

CASES = [
    (KIMI, MXFP4),
    (KIMI, f"rollout: gpu=h200\n{MXFP4}"),
    (KIMI, "@routed_experts: nvfp4 per_token\n"),
    (KIMI, f"@routed_experts: nvfp4 per_token\n@dense_mlp, lm_head: {WEIGHTS}\n"),
    (KIMI, f"q_b_proj: {TENSOR}\n"),
    (KIMI, "@linear_attention: fp8_block\n"),
    (KIMI, f"@shared_experts, @dense_mlp, @linear_attention: {CHANNELS}\n"),
    (KIMI, "default: mxfp8\n@routed_experts: bf16\nq_a_proj, kv_a_proj_with_mqa, @mla: bf16\n"),
    (STEP, "default: mxfp8\nlayers[1]: bf16\n"),
    (STEP, "rollout: gpu=h200\nkv_cache: fp8\ndefault: fp8_block scales fp32\n"),
    (STEP, f"@routed_experts: {STATIC}\n"),
    (STEP, f"default: {CHANNELS}\n"),
    (STEP, "@routed_experts: mxfp8\n@attention: fp8_block\n"),
    (STEP, "@dense_mlp, @shared_experts: weight int4 group 32, train bf16\n"),
]

REFUSED = [
    (KIMI, "@routed_experts: weight int4 group 32, train bf16\n", "takes them for MXFP4"),
    (KIMI, "@routed_experts: mxfp8\n", "no expert backend that runs MXFP8 with the activation"),
    (KIMI, MXFP4.replace("experts", "experts in layers[2:]"), "takes every expert layer for MXFP4"),
    (KIMI, "q_a_proj, kv_a_proj_with_mqa: mxfp8\n", "puts a scale for each row in the place of one for 128"),
    (KIMI, "b_proj in layers[0]: fp8_block\n", "joins these weights after loading"),
    (KIMI, "routed_expert_down_proj: mxfp8\n", "without a quantization config"),
    (STEP, "@routed_experts: nvfp4 per_token\n", "does not start Step3p7ForConditionalGeneration"),
    (STEP, "@routed_experts: weight int4 group 32, train bf16\n", "`weight_shape` has none"),
    (STEP, MXFP4, "loads no MXFP4 weights"),
    (STEP, "g_proj: mxfp8\n", "without a quantization config"),
]


@pytest.mark.slow
@pytest.mark.parametrize("model, policy", CASES)
def test_sglang_runs_and_loads_what_was_compiled(judge: Judge, model: str, policy: str) -> None:
    """Every tensor, those of the towers among them; the draft class of Step-3.7 is built without any config."""
    contract = four_layers(model, policy)
    assert not [finding.message for finding in findings(contract) if finding.is_error]
    judgement = judge(contract, emitted(contract))
    assert [finding.message for finding in judgement.findings] == []
    held = [tensor for tensor in contract.tensors if tensor.mtp is None]
    assert judgement.agree == judgement.tensors == sum(tensor.count for tensor in held)


@pytest.mark.parametrize("model, policy, words", REFUSED)
def test_what_sglang_cannot_do_is_refused(model: str, policy: str, words: str) -> None:
    """Each with the reason."""
    found = [finding.message for finding in findings(four_layers(model, policy)) if finding.is_error]
    assert any(words in message for message in found), found


@pytest.mark.slow
def test_what_is_refused_would_not_be_loaded(judge: Judge) -> None:
    """The live loader puts MXFP8 scales of the second projection where those of block FP8 would be."""
    contract = four_layers(KIMI, "q_a_proj, kv_a_proj_with_mqa: mxfp8\n")
    (finding,) = judge(contract, emitted(contract)).findings
    assert "would load nothing into `weight_scale_inv`" in finding.message
    assert "{kv_a_proj_with_mqa,q_a_proj}" in finding.message


def test_a_list_reaches_all_members_of_a_fused_module_in_one_way() -> None:
    """SGLang looks for runs in the name of each member first, and stops where these answer for some of them."""
    listed = config_of(four_layers(KIMI, f"q_a_proj, kv_a_proj_with_mqa: {STATIC}\n"))["ignore"]
    assert "self_attn.g_proj" in listed
    assert {f"model.layers.{layer}.self_attn.{name}_proj" for layer in (0, 1) for name in "qkv"} <= set(listed)


def test_mxfp4_that_is_not_packed_as_such_is_noticed() -> None:
    """Kimi-K3's experts are in MXFP4 by the format of their group: by another they would be something else."""
    contract = four_layers(KIMI, MXFP4)
    artifacts = emitted(contract)
    config = json.loads(artifacts[CONFIG])
    assert [one.decision for one in read_back(contract, artifacts)] == decides(contract)
    assert config["format"] == "mxfp4-pack-quantized"
    config["format"] = "float-quantized"
    for group in config["config_groups"].values():
        group.pop("format", None)
    readings = read_back(contract, {**artifacts, CONFIG: json.dumps(config)})
    assert [one.decision for one in readings] != decides(contract)
