"""MXFP4 stacks of gpt-oss, and DeepSeek-V4, whose experts may be in four bits beside block FP8: judged by SGLang."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from rollout.support import CONFIG, bound, emitted, findings

from precc.contract import Contract
from precc.graph.reading import read_model
from precc.graph.shrinking import shrink
from precc_sglang.reading import read_back
from precc_sglang.served import decides
from precc_sglang.upstream import Judge

GPT, FLASH, PRO = "gpt-oss-20b-bf16", "deepseek-v4-flash", "deepseek-v4-pro"

MXFP4 = "@routed_experts: weight mxfp4, train bf16\n"
STATIC = "weight nvfp4 per_tensor, input nvfp4 per_tensor static, train bf16"
FP8 = "default: fp8_block\n@mtp: fp8_block\n"
NVFP4 = f"default: {STATIC}\n@attention, @shared_experts, @mtp: fp8_block\n"

CASES = [
    (GPT, MXFP4),
    (GPT, f"rollout: gpu=h200\n{MXFP4}"),
    (FLASH, FP8),
    (FLASH, f"kv_cache: fp8\n{FP8}wkv in layers[1]: bf16\nwq_a in layers[1]: bf16\n"),
    (FLASH, f"rollout: gpu=h200\n{FP8.replace('block', 'block scales fp32')}@routed_experts in layers[2]: bf16\n"),
    (FLASH, NVFP4),
    (FLASH, f"@routed_experts: {STATIC}\n"),
    (FLASH, "@routed_experts: mxfp8\nlayers[1]: bf16\n"),
    (PRO, FP8),
    (PRO, "@routed_experts: nvfp4 per_token\n@attention: fp8_block\n@attention in @mtp: fp8_block\n"),
]

REFUSED = [
    (GPT, "@routed_experts in layers[:2]: weight mxfp4, train bf16\n", "takes every expert layer for MXFP4"),
    (GPT, f"rollout: ep=2 tp=2\n{MXFP4}", "has no kernels for weight-only MXFP4 with `ep=2`"),
    (GPT, "@routed_experts: mxfp8\n", "loads no quantized experts"),
    (FLASH, MXFP4, "loads no MXFP4 weights"),
    (FLASH, f"{FP8}wo_a in layers[0]: bf16\n", "stops where this projection is not in block FP8"),
    (FLASH, FP8.replace("block", "block scales fp32"), "rounds the scales of this projection"),
    (FLASH, f"rollout: sglang=0.5.16\n{FP8}", "asks for FP8 in DeepseekV4ForCausalLM"),
    (FLASH, "default: mxfp8\n", "builds this module without a quantization config"),
]


def of(model: str, policy: str) -> Contract:
    """The contract for four layers of a model."""
    return bound(policy, shrink(read_model(model), 4).graph)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """The live SGLang."""
    with Judge() as live:
        yield live


@pytest.mark.slow
@pytest.mark.parametrize("model, policy", CASES)
def test_sglang_runs_and_loads_what_was_compiled(judge: Judge, model: str, policy: str) -> None:
    """Every tensor, those of DeepSeek-V4's draft model among them."""
    contract = of(model, policy)
    assert not [finding.message for finding in findings(contract) if finding.is_error]
    judgement = judge(contract, emitted(contract))
    assert [finding.message for finding in judgement.findings] == []
    assert judgement.agree == judgement.tensors == sum(tensor.count for tensor in contract.tensors)


@pytest.mark.parametrize("model, policy, words", REFUSED)
def test_what_sglang_cannot_do_is_refused(model: str, policy: str, words: str) -> None:
    """Each with the reason."""
    found = [finding.message for finding in findings(of(model, policy)) if finding.is_error]
    assert any(words in message for message in found), found


@pytest.mark.parametrize("policy, key", [(FP8, "routed_experts_quant_method"), (NVFP4, "group_size")])
def test_a_config_that_does_not_say_what_experts_are_in_is_noticed(policy: str, key: str) -> None:
    """Without it SGLang would look into the headers, or take all experts for FP8."""
    contract = of(FLASH, policy)
    artifacts = emitted(contract)
    config = json.loads(artifacts[CONFIG])
    del config[key]
    readings = read_back(contract, {**artifacts, CONFIG: json.dumps(config)})
    assert [one.decision for one in read_back(contract, artifacts)] == decides(contract)
    assert [one.decision for one in readings] != decides(contract)
