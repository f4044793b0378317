"""Every word of the files is read: changed, it is found out, or it is one that nothing depends on."""

from __future__ import annotations

import json

import pytest
from rollout.support import (
    BLOCKS,
    CHANNELS,
    CONFIG,
    ENVIRONMENT,
    FOUR_BIT_WEIGHTS,
    FP8_CACHE,
    INTEGERS,
    LEGACY,
    MIXED,
    MXFP8,
    SERVER,
    SHELL,
    TWO_LINES,
    compiled,
    differing,
    edited,
    emitted,
    refusal,
    with_variable,
)

from precc_sglang.environment import MODELLED, VARIABLES

MODELS = (
    "qwen3-30b-a3b",
    "qwen3-8b",
    "deepseek-v3",
    "deepseek-v3.2",
    "deepseek-v2-lite",
    "glm-4.5-air",
    "llama-3.1-8b",
    "mixtral-8x7b",
)
CHANNEL_OUTPUTS = "o_proj: weight fp8 per_channel, input fp8 per_token, train bf16\n"


def without_legacy(artifacts: dict[str, str]) -> dict[str, str]:
    """The artifacts without the file that must agree with the config."""
    return {path: text for path, text in artifacts.items() if path != LEGACY}


# --- what is compared tensor by tensor ---------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_a_kv_cache_left_to_the_engine_is_found(cache: str, model: str) -> None:
    """`auto`, or no argument, is FP8 or BF16 by model, GPU and config: DeepSeek's sparse attention has FP8 then."""
    contract = compiled(f"{CHANNEL_OUTPUTS}kv_cache: {cache}\n", model)
    artifacts = emitted(contract)
    line = next(line for line in artifacts[SERVER].splitlines(True) if line.startswith("kv-cache-dtype"))
    cached = [tensor.name for tensor in contract.tensors if tensor.part in ("k", "v", "kv_a") and tensor.is_gemm]
    assert len(cached) >= contract.model.layers
    for instead in ("kv-cache-dtype: auto\n", "kv-cache-dtype: fp8_e5m2\n", ""):
        changed = {**artifacts, SERVER: artifacts[SERVER].replace(line, instead)}
        assert differing(contract, changed) == cached


DECLARED: tuple[tuple[str, dict[str, object]], ...] = (
    (TWO_LINES, {"kv_cache_scheme": {"type": "float", "num_bits": 8, "dynamic": False}}),
    (TWO_LINES, {"kv_cache_quant_algo": "NVFP4"}),
    (FP8_CACHE, {"kv_cache_quant_algo": None}),
    (f"{CHANNELS}kv_cache: fp8\n", {"kv_cache_scheme": {"type": "float", "num_bits": 8, "dynamic": True}}),
)


@pytest.mark.parametrize("policy, changes", DECLARED)
def test_a_config_that_declares_another_kv_cache_is_found(policy: str, changes: dict[str, object]) -> None:
    """The argument decides in SGLang; other readers of the checkpoint have only the config."""
    contract = compiled(policy, "qwen3-30b-a3b")
    artifacts = edited(without_legacy(emitted(contract)), CONFIG, **changes)
    assert len(differing(contract, artifacts)) == 2 * contract.model.layers


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("instead", ["dtype: float16\n", "dtype: auto\n", ""])
def test_another_dtype_is_found(instead: str, model: str) -> None:
    """It is that of all activations, and of every weight that is not quantized."""
    contract = compiled(CHANNEL_OUTPUTS, model)
    artifacts = emitted(contract)
    text = artifacts[SERVER].replace("\ndtype: bfloat16\n", f"\n{instead}")
    wrong = differing(contract, {**artifacts, SERVER: text})
    assert len(wrong) > contract.model.layers
    assert any("o_proj" in name for name in wrong)


@pytest.mark.parametrize("policy, block", [(MXFP8, [1, 64]), (BLOCKS, [64, 64]), (BLOCKS, [1, 32])])
def test_other_blocks_are_found(policy: str, block: list[int]) -> None:
    """SGLang overrules those of MXFP8 with a warning; another reader would not."""
    contract = compiled(policy, "qwen3-30b-a3b")
    assert differing(contract, edited(emitted(contract), CONFIG, weight_block_size=block))


def test_block_scales_are_declared_as_they_are_multiplied() -> None:
    """`scale_fmt` and the kernels say the same."""
    contract = compiled("default: fp8_block scales fp32\n", "qwen3-30b-a3b")
    assert differing(contract, edited(emitted(contract), CONFIG, scale_fmt="ue8m0"))


@pytest.mark.parametrize("runner", ["flashinfer_cutlass", "triton", "auto"])
@pytest.mark.parametrize("policy", [TWO_LINES, MXFP8])
def test_experts_run_in_a_backend_of_their_format(policy: str, runner: str) -> None:
    """Others may run them, or may not."""
    contract = compiled(policy, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[SERVER] = artifacts[SERVER].replace("flashinfer_trtllm_routed", runner)
    wrong = differing(contract, artifacts)
    assert wrong
    assert all("experts" in name for name in wrong)


SCHEMES: tuple[tuple[str, str, str, object], ...] = (
    (CHANNELS, "weights", "dynamic", True),
    (CHANNELS, "weights", "symmetric", False),
    (CHANNELS, "weights", "block_structure", [128, 128]),
    (CHANNELS, "input_activations", "strategy", "tensor"),
    (CHANNELS, "input_activations", "type", "int"),
    (INTEGERS, "weights", "actorder", "group"),
    (INTEGERS, "weights", "group_size", 128),
    (INTEGERS, "weights", "zp_dtype", "torch.int8"),
)


@pytest.mark.parametrize("policy, operand, word, value", SCHEMES)
def test_every_word_of_a_scheme_is_read(policy: str, operand: str, word: str, value: object) -> None:
    """compressed-tensors has a dozen for each operand."""
    contract = compiled(policy, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    groups = json.loads(artifacts[CONFIG])["config_groups"]
    groups["group_0"][operand][word] = value
    assert differing(contract, edited(artifacts, CONFIG, config_groups=groups))


# --- which contract the files are for ----------------------------------------------------------------

PLACES: tuple[tuple[str, str], ...] = (
    (SERVER, '"0:'),
    (SERVER, "# precc contract "),
    (SHELL, "# precc contract "),
    (CONFIG, '"precc_contract": "'),
    (LEGACY, '"precc_contract": "'),
    (ENVIRONMENT, '"digest": "'),
)


@pytest.mark.parametrize("path, before", PLACES)
@pytest.mark.parametrize("other", ["0" * 64, ""])
def test_a_file_of_another_contract_is_refused(path: str, before: str, other: str) -> None:
    """Every place that names a contract names this one."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    text = artifacts[path].replace(before + contract.digest, before + other)
    assert text != artifacts[path]
    code, message = refusal(contract, {**artifacts, path: text})
    assert (code, path in message) == ("P502", True)
    assert "another contract" in message or "names no contract" in message


@pytest.mark.parametrize("path, key", [(CONFIG, "precc_contract"), (LEGACY, "precc_contract"), (ENVIRONMENT, "digest")])
def test_a_file_without_a_digest_is_refused(path: str, key: str) -> None:
    """It may be anyone's."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    code, message = refusal(contract, edited(emitted(contract), path, **{key: None}))
    assert (code, "names no contract" in message) == ("P502", True)


def test_a_step_in_front_of_the_digest_is_free() -> None:
    """A trainer counts it up with every update."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[SERVER] = artifacts[SERVER].replace('"0:', '"173:')
    assert differing(contract, artifacts) == []


# --- what no contract says ---------------------------------------------------------------------------

ARGUMENTS = (
    "torchao-config: int4wo-128",
    "json-model-override-args: '{\"quantization_config\": {}}'",
    "quantization-param-path: scales.json",
    "kv_cache_dtype: bf16",
    "kv-cache: auto",
    "fp4-gemm-backend: marlin",
    "enable-fp32-lm-head: true",
    "enforce-shared-experts-fusion: true",
    "a-new-argument: 1",
    "7: 7",
    "tp-size: 8",
    "dtype: [bfloat16]",
    "disable-shared-experts-fusion: 'true'",
)


@pytest.mark.parametrize("line", ARGUMENTS)
def test_an_argument_that_may_change_precision_is_refused(line: str) -> None:
    """Also one that precc does not know, another spelling of one that it does, and a size that nobody stated."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[SERVER] += f"{line}\n"
    code, message = refusal(contract, artifacts)
    assert (code, line.partition(":")[0] in message) == ("P502", True)


def test_arguments_that_change_no_number_are_free() -> None:
    """A launcher may keep all its arguments in one file."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[SERVER] += "model-path: /models/m\nport: 30000\nmem-fraction-static: 0.8\ntrust-remote-code: true\n"
    assert differing(contract, artifacts) == []


LAYOUTS = (("tp-size: 8", "tp-size: 4"), ("ep-size: 4\n", ""), ("attn-dp-size: 2", "attn-dp-size: 1"))


@pytest.mark.parametrize("old, new", LAYOUTS)
def test_another_layout_is_refused(old: str, new: str) -> None:
    """What a per-token scale is of depends on how experts are split."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b", "tp=8 ep=4 dp=2")
    artifacts = emitted(contract)
    assert old in artifacts[SERVER]
    artifacts[SERVER] = artifacts[SERVER].replace(old, new)
    assert refusal(contract, artifacts)[0] == "P502"


WORDS: tuple[tuple[str, str, dict[str, object]], ...] = (
    (MXFP8, "qwen3-30b-a3b", {"fmt": "e5m2"}),
    (MXFP8, "qwen3-30b-a3b", {"scale_fmt": "fp32"}),
    (MXFP8, "qwen3-30b-a3b", {"activation_scheme": "static"}),
    (MXFP8, "qwen3-30b-a3b", {"routed_experts_quant_method": "mxfp4"}),
    (BLOCKS, "qwen3-30b-a3b", {"moe_quant_algo": "NVFP4"}),
    (FOUR_BIT_WEIGHTS, "qwen3-8b", {"group_size": 32}),
    (FOUR_BIT_WEIGHTS, "qwen3-8b", {"config_groups": {}}),
    (CHANNELS, "qwen3-30b-a3b", {"linear_fp8_config": {"quant_method": "fp8"}}),
    (CHANNELS, "qwen3-30b-a3b", {"quantization_status": "frozen"}),
    (INTEGERS, "qwen3-30b-a3b", {"sparsity_config": {"format": "dense"}}),
    (MIXED, "qwen3-30b-a3b", {"moe_quant_algo": "NVFP4"}),
)


@pytest.mark.parametrize("policy, model, changes", WORDS)
def test_a_word_that_no_config_of_ours_has_is_refused(policy: str, model: str, changes: dict[str, object]) -> None:
    """It may change what is served in a way that precc does not read."""
    contract = compiled(policy, model)
    code, message = refusal(contract, edited(without_legacy(emitted(contract)), CONFIG, **changes))
    assert (code, next(iter(changes)) in message) == ("P502", True)


@pytest.mark.parametrize("section", [None, "quantization"])
def test_a_word_of_the_legacy_file_that_the_config_lacks_is_refused(section: str | None) -> None:
    """Some tool reads that one."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    shown = json.loads(artifacts[LEGACY])
    (shown if section is None else shown[section])["kv_cache_dtype"] = "fp8"
    code, message = refusal(contract, {**artifacts, LEGACY: json.dumps(shown)})
    assert (code, "kv_cache_dtype" in message) == ("P502", True)


@pytest.mark.parametrize("facts", [{"quant_algo": "NVFP4", "group_size": 32}, {"quant_algo": "NVFP4", "scale": 1}])
def test_a_module_of_a_mix_has_its_formats_group(facts: dict[str, object]) -> None:
    """And nothing but a format and a group."""
    contract = compiled(MIXED, "qwen3-30b-a3b")
    artifacts = without_legacy(emitted(contract))
    layers = json.loads(artifacts[CONFIG])["quantized_layers"]
    name = next(iter(layers))
    code, message = refusal(contract, edited(artifacts, CONFIG, quantized_layers={**layers, name: facts}))
    assert (code, name in message) == ("P502", True)


@pytest.mark.parametrize("key", ["output_activations", "observer"])
def test_a_scheme_of_outputs_is_refused(key: str) -> None:
    """No decision has quantized outputs."""
    contract = compiled(CHANNELS, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    groups = json.loads(artifacts[CONFIG])["config_groups"]
    groups["group_0"][key] = {"num_bits": 8}
    assert key in refusal(contract, edited(artifacts, CONFIG, config_groups=groups))[1]


# --- the environment ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in VARIABLES if name not in MODELLED])
def test_a_variable_whose_effect_is_not_modelled_is_refused(name: str) -> None:
    """precc only ever unsets it."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    assert name in refusal(contract, with_variable(emitted(contract), name, "1"))[1]


@pytest.mark.parametrize("value", ["1", None])
def test_an_unknown_variable_is_refused(value: str | None) -> None:
    """A new switch, or one of another engine."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    assert "SGLANG_NEW" in refusal(contract, with_variable(emitted(contract), "SGLANG_NEW", value))[1]


@pytest.mark.parametrize("line", ["A=1", "export A='1 2'", "source other.sh", "unset A B"])
def test_a_line_of_the_shell_file_that_does_anything_else_is_refused(line: str) -> None:
    """It would run in the launching shell."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[SHELL] += f"{line}\n"
    assert line in refusal(contract, artifacts)[1]


def test_a_further_fact_of_the_environment_is_refused() -> None:
    """It has a digest, what is set and what is unset."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    assert refusal(contract, edited(emitted(contract), ENVIRONMENT, dtype="fp16"))[0] == "P502"
