"""What Miles cannot run is refused, with the words of the policy and what to write instead."""

from __future__ import annotations

import pytest
from miles.support import errors

REFUSED: tuple[tuple[str, str, str, str], ...] = (
    ("@routed_experts: weight int4 group 32, train fake_quant\n", "qwen3-30b-a3b", "P701", "FP32 scales"),
    ("default: fp8 per_channel, train bf16\n", "qwen3-8b", "P701", "takes a per-channel checkpoint for INT4"),
    ("default: fp8_block\n", "qwen3-8b", "P701", "its converter writes fp8_block scales fp32 weights"),
    ("@routed_experts: weight nvfp4, train bf16\n", "qwen3-30b-a3b", "P701", "with nvfp4 per_token inputs"),
    ("@routed_experts: nvfp4 per_tensor\n", "qwen3-30b-a3b", "P701", "with nvfp4 per_token inputs"),
    ("default: mxfp8\n@routed_experts: nvfp4 per_token\n", "qwen3-30b-a3b", "P701", "one run of Miles"),
    ("default: fp32\n", "qwen3-8b", "P701", "its trainer and its server run in BF16"),
    ("default: mxfp8\ntrain: gpu=h200\n", "qwen3-8b", "P701", "b200, b300, gb200, gb300, not on h200"),
    ("default: mxfp8\n", "minimax-m2", "P701", "no names for the trained weights of MiniMaxM2ForCausalLM"),
    ("default: mxfp8\n", "mimo-v2-flash", "P701", "no names for the trained weights of MiMoV2FlashForCausalLM"),
    ("default: mxfp8\n", "qwen3.5-27b", "P701", "in `megatron_to_hf/qwen3_5.py`, which are not modelled here"),
    ("default: mxfp8\n", "qwen3.5-35b-a3b", "P701", "in `megatron_to_hf/qwen3_5.py`, which are not modelled here"),
    ("default: mxfp8\n", "kimi-k2.5", "P701", "in `megatron_to_hf/kimi_vl.py`, which are not modelled here"),
    ("default: mxfp8\n", "deepseek-v4-flash", "P701", "in `megatron_to_hf/deepseekv4.py`, which are not modelled here"),
    ("default: mxfp8\nrollout: flashinfer=0.7.4\n", "qwen3-8b", "P701", "runs flashinfer 0.6.15.post1, not 0.7.4"),
    ("default: mxfp8\nlayers[-6:]: bf16\ntrain: pp=9\n", "qwen3-8b", "P506", "Megatron allows 4 at pp=9"),
    ("@routed_experts: nvfp4 per_token\ntrain: etp=2\nrollout: tp=2\n", "qwen3-30b-a3b", "P503", "each of 2 shards"),
    ("@shared_experts: nvfp4 per_token\ntrain: tp=2\n", "glm-4.5-air", "P503", "shards (tp)"),
    ("{q,k}_proj: mxfp8\n", "qwen3-8b", "P201", "as one GEMM"),
    ("@routed_experts: nvfp4 per_token\nrollout: tp=4 ep=2\ntrain: etp=1\n", "qwen3-30b-a3b", "P503", "tp=4 / ep=2"),
)
"""A policy, a model, the code, and words of the finding."""


@pytest.mark.parametrize("policy, model, code, words", REFUSED)
def test_what_miles_cannot_run_is_refused(policy: str, model: str, code: str, words: str) -> None:
    """By the rules here, and by precc's own about the engines that Miles starts."""
    found = [finding for finding in errors(policy, model) if finding.code == code and words in finding.message]
    assert found, [f"{finding.code} {finding.message}" for finding in errors(policy, model)]
    assert all(finding.help for finding in found)


def test_a_format_that_is_refused_is_not_told_again_stage_by_stage() -> None:
    """One finding says what is wrong; there are no flags to compare."""
    assert len(errors("default: fp8_block\n", "qwen3-8b")) == 1
