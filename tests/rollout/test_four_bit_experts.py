"""MXFP4 stacks of gpt-oss, and DeepSeek-V4, whose experts may be in four bits beside block FP8: judged by SGLang."""

from __future__ import annotations

import json

import pytest
import yaml
from rollout.support import CONFIG, ENVIRONMENT, SERVER, emitted, findings, four_layers

from precc.backend import Unsupported
from precc_sglang.launch import attest_launch
from precc_sglang.reading import read_back
from precc_sglang.served import decides
from precc_sglang.upstream import Judge

GPT, FLASH, PRO = "gpt-oss-20b-bf16", "deepseek-v4-flash", "deepseek-v4-pro"

MXFP4 = "@routed_experts: weight mxfp4, train bf16\n"
ROUNDED = "weight mxfp4, input mxfp8, train bf16"
STATIC = "weight nvfp4 per_tensor, input nvfp4 per_tensor static, train bf16"
FP8 = "default: fp8_block\n@mtp: fp8_block\n"
NVFP4 = f"default: {STATIC}\n@attention, @shared_experts, @mtp: fp8_block\n"
RELEASED = f"{FP8}@routed_experts, @routed_experts in @mtp: {ROUNDED}\n"
WEIGHTS = RELEASED.replace(", input mxfp8", "")

CASES = [
    (GPT, MXFP4),
    (GPT, f"rollout: gpu=h200\n{MXFP4}"),
    (FLASH, FP8),
    (FLASH, f"kv_cache: fp8\n{FP8}wkv in layers[1]: bf16\nwq_a in layers[1]: bf16\n"),
    (FLASH, f"rollout: gpu=h200\n{FP8.replace('block', 'block scales fp32')}@routed_experts in layers[2]: bf16\n"),
    (FLASH, NVFP4),
    (FLASH, f"@routed_experts: {STATIC}\n"),
    (FLASH, "@routed_experts: mxfp8\nlayers[1]: bf16\n"),
    (FLASH, RELEASED),
    (FLASH, WEIGHTS),
    (FLASH, f"rollout: gpu=h200\n{WEIGHTS.replace('block', 'block scales fp32')}"),
    (FLASH, f"{NVFP4}@routed_experts in @mtp: {ROUNDED}\n"),
    (PRO, FP8),
    (PRO, f"kv_cache: fp8\n{RELEASED}@routed_experts in layers[1], wkv in layers[1], wq_a in layers[1]: bf16\n"),
    (PRO, "@routed_experts: nvfp4 per_token\n@attention: fp8_block\n@attention in @mtp: fp8_block\n"),
]

REFUSED = [
    (GPT, "@routed_experts in layers[:2]: weight mxfp4, train bf16\n", "takes every expert layer for MXFP4"),
    (GPT, f"rollout: ep=2 tp=2\n{MXFP4}", "has no kernels for weight-only MXFP4 with `ep=2`"),
    (GPT, "@routed_experts: mxfp8\n", "loads no quantized experts"),
    (GPT, f"@routed_experts: {ROUNDED}\n", "runs MXFP4 experts of GptOssForCausalLM with unquantized inputs"),
    (FLASH, MXFP4, "stops where this projection is not in block FP8"),
    (FLASH, f"{FP8}@routed_experts: {ROUNDED}\n", "takes every expert layer for MXFP4"),
    (FLASH, f"rollout: gpu=h200\n{RELEASED}", "has no kernels for MXFP4 with MXFP8 inputs on `gpu=h200`"),
    (FLASH, f"{RELEASED}@routed_experts in layers[1]: weight mxfp4, train bf16\n", "has no method for"),
    (FLASH, f"{RELEASED}@routed_experts in layers[1]: {STATIC}\n", "has no expert backend that runs"),
    (FLASH, f"{RELEASED}@shared_experts: {ROUNDED}\n", "has no method for"),
    (FLASH, f"rollout: sglang=0.5.16\n{RELEASED}", "asks for FP8 in DeepseekV4ForCausalLM"),
    (FLASH, f"{FP8}wo_a in layers[0]: bf16\n", "stops where this projection is not in block FP8"),
    (FLASH, FP8.replace("block", "block scales fp32"), "rounds the scales of this projection"),
    (FLASH, f"rollout: sglang=0.5.16\n{FP8}", "asks for FP8 in DeepseekV4ForCausalLM"),
    (FLASH, "default: mxfp8\n", "builds this module without a quantization config"),
]


@pytest.mark.slow
@pytest.mark.parametrize("model, policy", CASES)
def test_sglang_runs_and_loads_what_was_compiled(judge: Judge, model: str, policy: str) -> None:
    """Every tensor, those of DeepSeek-V4's draft model among them."""
    contract = four_layers(model, policy)
    assert not [finding.message for finding in findings(contract) if finding.is_error]
    judgement = judge(contract, emitted(contract))
    assert [finding.message for finding in judgement.findings] == []
    assert judgement.agree == judgement.tensors == sum(tensor.count for tensor in contract.tensors)


@pytest.mark.parametrize("model, policy, words", REFUSED)
def test_what_sglang_cannot_do_is_refused(model: str, policy: str, words: str) -> None:
    """Each with the reason."""
    found = [finding.message for finding in findings(four_layers(model, policy)) if finding.is_error]
    assert any(words in message for message in found), found


KEY = "routed_experts_quant_method"


@pytest.mark.parametrize(
    "policy, key", [(FP8, KEY), (NVFP4, "group_size"), (f"{NVFP4}@routed_experts in @mtp: {ROUNDED}\n", "group_size")]
)
def test_a_config_that_does_not_say_what_experts_are_in_is_noticed(policy: str, key: str) -> None:
    """Without it SGLang would look into the headers, or take all experts for FP8."""
    contract = four_layers(FLASH, policy)
    artifacts = emitted(contract)
    config = json.loads(artifacts[CONFIG])
    del config[key]
    readings = read_back(contract, {**artifacts, CONFIG: json.dumps(config)})
    assert [one.decision for one in read_back(contract, artifacts)] == decides(contract)
    assert [one.decision for one in readings] != decides(contract)


@pytest.mark.slow
@pytest.mark.parametrize("policy, said", [(FP8, "mxfp4 in the kernels of fp8"), (RELEASED, "")])
def test_sglang_takes_experts_for_mxfp4_where_nothing_says_what_they_are(judge: Judge, policy: str, said: str) -> None:
    """Why the config always says it: without the key, and without headers, its default is MXFP4."""
    contract = four_layers(FLASH, policy)
    artifacts = emitted(contract)
    config = json.loads(artifacts[CONFIG])
    del config[KEY]
    messages = [finding.message for finding in judge(contract, {**artifacts, CONFIG: json.dumps(config)}).findings]
    assert any(f"as {said}" in message for message in messages) if said else messages == []


PRECISION = "flashinfer-mxfp4-moe-precision"
READ = [
    (RELEASED, f"{PRECISION}: default", f"{PRECISION}: bf16", "mxfp4_weights"),
    (RELEASED, f"{PRECISION}: default", f"{PRECISION}: fp8", "mxfp4 with fp8 inputs"),
    (RELEASED, f"{PRECISION}: default\n", "", "mxfp4"),
    (WEIGHTS, f"{PRECISION}: bf16\n", "", "mxfp4"),
]


@pytest.mark.parametrize("policy, written, other, method", READ)
def test_the_argument_that_rounds_the_inputs_is_read(policy: str, written: str, other: str, method: str) -> None:
    """Left out it is the engine's default, which on Blackwell is MXFP8."""
    contract = four_layers(FLASH, policy)
    artifacts = emitted(contract)
    assert written in artifacts[SERVER]
    readings = read_back(contract, {**artifacts, SERVER: artifacts[SERVER].replace(written, other)})
    found = (one.decision for one, tensor in zip(readings, contract.tensors, strict=True) if tensor.experts)
    assert {getattr(one, "method", None) for one in found} == {method}


def test_the_argument_is_for_experts_in_mxfp4_alone() -> None:
    """Beside any other config, and beside one that does not say it any more, it is what precc never writes."""
    released = four_layers(FLASH, RELEASED)
    artifacts = emitted(released)
    config = {key: said for key, said in json.loads(artifacts[CONFIG]).items() if key != KEY}
    with pytest.raises(Unsupported, match="it chooses the format of expert inputs"):
        read_back(released, {**artifacts, CONFIG: json.dumps(config)})
    fp8 = four_layers(FLASH, FP8)
    artifacts = emitted(fp8)
    with pytest.raises(Unsupported, match="it chooses the format of expert inputs"):
        read_back(fp8, {**artifacts, SERVER: artifacts[SERVER] + f"{PRECISION}: default\n"})


@pytest.mark.parametrize("policy", [RELEASED, WEIGHTS, f"{NVFP4}@routed_experts in @mtp: {ROUNDED}\n", NVFP4])
def test_a_launch_line_of_what_was_compiled_attests(policy: str) -> None:
    """Arguments that decide precision beside other contracts are this one's own."""
    contract = four_layers(FLASH, policy)
    artifacts = emitted(contract)
    said = yaml.safe_load(artifacts[SERVER])
    line = ["python", "-m", "sglang.launch_server"]
    line += [
        word for name, value in said.items() for word in (f"--{name}", *([str(value)] if value is not True else []))
    ]
    environment = json.loads(artifacts[ENVIRONMENT])["set"]
    assert [finding.message for finding in attest_launch(contract, line, environment).findings] == []
    other = [word.replace("flashinfer_mxfp4", "triton").replace("default", "fp8") for word in line]
    assert bool(attest_launch(contract, other, environment).findings) is (other != line)
