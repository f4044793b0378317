"""Gated delta nets, Mamba-2 mixers, multimodal wrappers, stacked experts: the classes of Qwen3-Next, Qwen3.5, Qwen3-VL
and Nemotron-H, judged."""

from __future__ import annotations

import json

import pytest
from rollout.support import CONFIG, config_of, emitted, findings, four_layers

import precc_converter
from precc.backend import Unsupported
from precc.contract import Contract
from precc_sglang.upstream import Judge

NEXT, DENSE, MOE, VISUAL = "qwen3-next-80b-a3b", "qwen3.5-27b", "qwen3.5-35b-a3b", "qwen3-vl-30b-a3b"
NANO, LATENT = "nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b"
PLAN = "converter/plan.json"

WEIGHTS = "weight nvfp4, input bf16, train bf16"
STATIC = "weight nvfp4 per_tensor, input nvfp4 per_tensor static, train bf16"
TENSOR = "weight fp8 per_tensor, input fp8 per_tensor static, train bf16"

CASES = [
    (NEXT, "default: mxfp8\nlayers[0].mlp, layers[2].linear_attn: bf16\n"),
    (DENSE, "default: mxfp8\n(@mtp): mxfp8\nlayers[1]: bf16\n"),
    (DENSE, f"@linear_attention, @dense_mlp: {WEIGHTS}\n"),
    (MOE, "default: mxfp8\nlayers[0].mlp, layers[2].linear_attn: bf16\n"),
    (MOE, "@routed_experts: nvfp4 per_token\nlayers[0], layers[2]: bf16\n"),
    (MOE, "@routed_experts: nvfp4 per_token\n@attention: mxfp8\n@attention in @mtp: mxfp8\n"),
    (MOE, f"@routed_experts: nvfp4 per_token\n@linear_attention, lm_head: {WEIGHTS}\n"),
    (MOE, "default: fp8_block\n@linear_attention: bf16\n@routed_experts in @mtp: fp8_block\n"),
    (VISUAL, "@routed_experts: nvfp4 per_token\nlayers[0]: bf16\n"),
    (VISUAL, "@routed_experts: nvfp4 per_token\nlayers[0].self_attn: mxfp8\n"),
    (VISUAL, "@routed_experts: weight int4 group 32, train bf16\nlayers[2]: bf16\n"),
    (NANO, "default: mxfp8\nlayers[1].mixer, layers[2].o_proj: bf16\n"),
    (NANO, "@routed_experts: nvfp4 per_token\n"),
    (LATENT, "default: mxfp8\n(@mtp): mxfp8\nlayers[2]: bf16\n"),
    (LATENT, "default: mxfp8\nfc1_latent_proj, fc2_latent_proj: bf16\n"),
    (LATENT, f"default: {STATIC}\n(@mtp), lm_head: {STATIC}\n"),
    (LATENT, f"@linear_attention, @shared_experts, lm_head, o_proj: {TENSOR}\n@routed_experts: {TENSOR}\n"),
    (LATENT, f"@linear_attention: {TENSOR}\n@routed_experts, @shared_experts, lm_head: {WEIGHTS}\n"),
    (LATENT, "@attention, @linear_attention: fp8_block\n"),
]


def planned(contract: Contract) -> dict[str, str]:
    """The artifacts, and the converter's plan."""
    return {**emitted(contract), **{one.path: one.text for one in precc_converter.backend.emit(contract)}}


@pytest.mark.slow
@pytest.mark.parametrize("model, policy", CASES)
def test_sglang_runs_and_loads_what_was_compiled(judge: Judge, model: str, policy: str) -> None:
    """Layer by layer, draft models among it; of Qwen3-Next's MTP layer a server holds nothing."""
    contract = four_layers(model, policy)
    assert not [finding.message for finding in findings(contract) if finding.is_error]
    judgement = judge(contract, emitted(contract) if "static" in policy else planned(contract))
    assert [finding.message for finding in judgement.findings] == []
    held = [tensor for tensor in contract.tensors if model != NEXT or tensor.mtp is None]
    assert judgement.agree == judgement.tensors == sum(tensor.count for tensor in held)


@pytest.mark.slow
def test_a_stack_beside_single_experts_would_be_all_that_is_read(judge: Judge) -> None:
    """Why no stack is kept where one is taken apart: the loader that met it looks for no single expert any more."""
    contract = four_layers(MOE, "@routed_experts: mxfp8\nlayers[0]: bf16\n")
    artifacts = planned(contract)
    plan = json.loads(artifacts[PLAN])
    for line in plan["tensors"]:
        if "language_model.layers.0.mlp.experts" in line["tensor"]:
            assert line["stack"]["experts"] == contract.model.expert_count
            line["outputs"] = line["sources"]
            del line["stack"]
    judgement = judge(contract, {**artifacts, PLAN: json.dumps(plan)})
    said = "would load nothing into `w13_weight` of `model.language_model.layers.{1..3}.mlp.experts"
    assert any(said in finding.message for finding in judgement.findings)


@pytest.mark.parametrize(
    "model, policy, code, says",
    [
        (NEXT, "@attention: weight nvfp4, input bf16, train bf16\n", "P701", "self_attn.{k,q,v}_proj"),
        (NEXT, f"@linear_attention: {WEIGHTS}\n", "P702", "into the place of the first alone"),
        (NEXT, "@routed_experts in @mtp: mxfp8\n", "P701", "mtp.layers.0.mlp.experts"),
        (NEXT, "default: fp8_block\n", "P701", "in_proj_ba"),
        (DENSE, "default: fp8_block\n", "P701", "in_proj_"),
        (MOE, "@routed_experts in @mtp: nvfp4 per_token\n", "P701", "drops an NVFP4 config in the draft model"),
        (MOE, "linear_fc2 in @vision: mxfp8\n", "P701", "without a quantization config"),
    ],
)
def test_what_a_class_cannot_run_is_refused(model: str, policy: str, code: str, says: str) -> None:
    """With the tensors, before anything is written."""
    found = [f.message for f in findings(four_layers(model, policy)) if f.is_error and f.code == code]
    assert any(says in message for message in found), found


def test_an_entry_for_a_decoder_layer_is_no_entry_for_a_draft_layer() -> None:
    """A list of FP8 or MXFP8 cannot tell `model.layers.1` from `mtp.layers.1`: such a policy has no list."""
    with pytest.raises(Unsupported) as caught:
        emitted(four_layers(LATENT, "default: mxfp8\n(@mtp): mxfp8\nlayers[1]: bf16\n"))
    (finding,) = caught.value.findings
    assert finding.code == "P701"
    assert "backbone.layers.1.mixer." in finding.message


def test_the_server_without_a_draft_model_is_said() -> None:
    """Qwen3-Next's draft model would be built like layer 0; where nothing is quantized that is no matter."""
    quantized = "@routed_experts: mxfp8\n"
    said = {
        (model, policy): "P702" in {finding.code for finding in findings(four_layers(model, policy))}
        for model, policy in ((NEXT, quantized), (NEXT, "default: bf16\n"), (MOE, quantized))
    }
    assert [case for case, found in said.items() if found] == [(NEXT, quantized)]


def test_no_list_takes_all_layers_out_at_once() -> None:
    """Entries name single layers or parts, below the wrapper's prefix: a class may rename what begins with it."""
    contract = four_layers(VISUAL, "@routed_experts: nvfp4 per_token\nlayers[3]: bf16\n")
    listed = config_of(contract)["ignore"]
    assert "*.language_model.layers.3.mlp.experts" in listed
    assert not [entry for entry in listed if entry.endswith("layers") or entry.startswith("model.")]


def test_a_mix_names_fused_attention_as_the_class_renames_it() -> None:
    """Qwen3-VL makes `attn.qkv_proj` of `attn.qkv`, of `attn.qkv_proj` it would make what nothing asks for."""
    contract = four_layers(VISUAL, "@routed_experts: nvfp4 per_token\nlayers[0].self_attn: mxfp8\n")
    keys = json.loads(emitted(contract)[CONFIG])["quantized_layers"]
    assert "model.language_model.layers.0.self_attn.qkv" in keys
