"""Contracts, artifacts and small models that the tests of this target start from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from precc import pipeline, rules
from precc.backend import Unsupported
from precc.contract import Contract
from precc.diagnostics import Diagnostic
from precc.graph.config import describe
from precc.graph.model import ModelGraph
from precc.graph.reading import read_model
from precc.graph.shrinking import shrink
from precc.resolve.bind import bind
from precc.source import SourceFile
from precc_sglang import backend
from precc_sglang.environment import shell_text

CONFIG = "sglang/quantization_config.json"
LEGACY = "sglang/hf_quant_config.json"
SERVER = "sglang/server.yaml"
SHELL = "sglang/env.sh"
ENVIRONMENT = "sglang/env.json"

TWO_LINES = "experts.*: nvfp4 per_token\nlayers[-15%:]: bf16\nkv_cache: bf16\n"
MXFP8 = "default: mxfp8\nkv_b_proj?, indexer.wk?: bf16\nlayers[-15%:]: bf16\n"
BLOCKS = "default: fp8_block\n@mla?, indexer.wk?: bf16\nlayers[-1:]: bf16\n"
MIXED = "default: mxfp8\n@routed_experts?: nvfp4 per_token\nkv_b_proj?, @shared_experts?, layers[0]: bf16\n"
MIXED_WITHOUT_FP4 = "default: mxfp8\n@attention: fp8_block\nkv_b_proj?: bf16\n"
TENSORS = (
    "default: weight fp8 per_tensor, input fp8 per_tensor static, train bf16\n"
    "@mla?, q_a_proj?, kv_a_proj_with_mqa?: bf16\n"
    "layers[1]: bf16\n"
)
CHANNELS = "default: weight fp8 per_channel, input fp8 per_token, train bf16\nkv_b_proj?: bf16\nlayers[-1:]: bf16\n"
INTEGERS = "@routed_experts?, @dense_mlp?: weight int4 group 32, train bf16\nlayers[0]: bf16\n"
FOUR_BIT_WEIGHTS = "default: weight nvfp4, train bf16\n@mla?, q_a_proj?, kv_a_proj_with_mqa?, layers[1]: bf16\n"
UNQUANTIZED = "default: bf16\n"
FP8_CACHE = "@routed_experts: mxfp8\nkv_cache: fp8\n"
MTP = "default: mxfp8\nkv_b_proj: bf16\n(@mtp): mxfp8\nkv_b_proj in @mtp: bf16\n"

POLICIES: dict[str, str] = {
    "two lines": TWO_LINES,
    "mxfp8": MXFP8,
    "fp8 blocks": BLOCKS,
    "mix with nvfp4": MIXED,
    "mix without nvfp4": MIXED_WITHOUT_FP4,
    "fp8 tensors": TENSORS,
    "fp8 channels": CHANNELS,
    "int4": INTEGERS,
    "nvfp4 weights": FOUR_BIT_WEIGHTS,
    "unquantized": UNQUANTIZED,
}

REFUSED = {
    *((policy, "llama") for policy in ("mxfp8", "fp8 blocks", "mix with nvfp4", "mix without nvfp4")),
    *((policy, "mixtral") for policy in ("two lines", "mix with nvfp4", "mix without nvfp4")),
}
"""What this version cannot run; the rules' tests say why."""


@cache
def compiled(policy: str, model: str, rollout: str = "") -> Contract:
    """The contract of a policy text under a layout of words (`tp=8 gpu=h100`), whatever the rules say of it."""
    return bound(policy, read_model(model), rollout)


def bound(policy: str, graph: ModelGraph, rollout: str = "") -> Contract:
    """The contract of a policy text for a graph."""
    read, found = pipeline.read_policy(SourceFile("p.prec", policy))
    assert not [finding.message for finding in found if finding.is_error]
    settings = dict(word.split("=", 1) for word in rollout.split())
    return pipeline.Settings(rollout=settings).apply(bind(read, graph), ("sglang",)).contract


def four_layers(model: str, policy: str) -> Contract:
    """The contract of a policy text for four layers of a model."""
    return bound(policy, shrink(read_model(model), 4).graph)


def findings(contract: Contract) -> list[Diagnostic]:
    """What this target's rules say of a contract."""
    return list(rules.check_backend(backend.rules, contract))


SILENCEABLE = ("p702_static_fp8", "p702_absorbed_blocks")
"""Defects that an author may accept: what is emitted all the same reads back as decided."""


def errors(contract: Contract) -> list[str]:
    """The messages of its errors, but those that an author may accept."""
    found = []
    for rule in rules.modules(backend.rules):
        if rule.__name__.rpartition(".")[2] not in SILENCEABLE:
            found += [finding.message for finding in rule.check(contract) if finding.is_error]
    return found


def emitted(contract: Contract) -> dict[str, str]:
    """What the backend writes, by path."""
    return {artifact.path: artifact.text for artifact in backend.emit(contract)}


def config_of(contract: Contract) -> dict[str, Any]:
    """The emitted quantization config."""
    shown: dict[str, Any] = json.loads(emitted(contract)[CONFIG])
    return shown


def served(contract: Contract, artifacts: Mapping[str, str], name: str) -> Any:
    """What artifacts say of one tensor, by its name without `.weight` (a range of experts as the graph names it)."""
    readings = backend.read_back(contract, artifacts)
    at = next(i for i, tensor in enumerate(contract.tensors) if tensor.module == name and tensor.is_gemm)
    return readings[at].decision


def differing(contract: Contract, artifacts: Mapping[str, str]) -> list[str]:
    """The tensors whose reading is not what the contract decides."""
    readings = backend.read_back(contract, artifacts)
    pairs = zip(contract.tensors, backend.decides(contract), readings, strict=True)
    return [tensor.name for tensor, wanted, reading in pairs if reading.decision != wanted]


def edited(artifacts: Mapping[str, str], path: str, **changes: Any) -> dict[str, str]:
    """The artifacts with some keys of one JSON file replaced; None removes one."""
    shown = json.loads(artifacts[path])
    shown.update({key: value for key, value in changes.items() if value is not None})
    for key in (key for key, value in changes.items() if value is None):
        del shown[key]
    return {**artifacts, path: json.dumps(shown)}


def with_variable(artifacts: Mapping[str, str], name: str, value: str | None) -> dict[str, str]:
    """The artifacts with a variable set, or unset, in both files."""
    facts = json.loads(artifacts[ENVIRONMENT])
    facts["set"].pop(name, None)
    facts["unset"] = [other for other in facts["unset"] if other != name]
    if value is None:
        facts["unset"].append(name)
    else:
        facts["set"][name] = value
    return {**artifacts, ENVIRONMENT: json.dumps(facts), SHELL: shell_text(facts)}


def refusal(contract: Contract, artifacts: Mapping[str, str]) -> tuple[str, str]:
    """The code and the message of the one finding with which artifacts are refused."""
    with pytest.raises(Unsupported) as caught:
        backend.read_back(contract, artifacts)
    (finding,) = caught.value.findings
    return finding.code, finding.message


# --- small models of the real structure --------------------------------------------------------------

_COMMON: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "attention_bias": False,
}
_EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 128,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}
_SHARED: dict[str, Any] = {
    **_EXPERTS,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
}
_LATENT: dict[str, Any] = {
    **_SHARED,
    "num_key_value_heads": 4,
    "moe_layer_freq": 1,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "rope_scaling": {
        "type": "yarn",
        "rope_type": "deepseek_yarn",
        "factor": 4,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 64,
    },
}


def _small(architecture: str, model_type: str, **facts: Any) -> dict[str, Any]:
    return {**_COMMON, "architectures": [architecture], "model_type": model_type, **facts}


SMALL: dict[str, dict[str, Any]] = {
    "qwen3_moe": _small(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        **_EXPERTS,
        num_experts=4,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
    "qwen3": _small("Qwen3ForCausalLM", "qwen3"),
    "qwen2": _small("Qwen2ForCausalLM", "qwen2"),
    "llama": _small("LlamaForCausalLM", "llama"),
    "mixtral": _small(
        "MixtralForCausalLM", "mixtral", num_local_experts=4, num_experts_per_tok=2, intermediate_size=256
    ),
    "deepseek_v3": _small(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        **_LATENT,
        q_lora_rank=128,
        scoring_func="sigmoid",
        topk_method="noaux_tc",
        num_nextn_predict_layers=1,
    ),
    "deepseek_v2": _small(
        "DeepseekV2ForCausalLM",
        "deepseek_v2",
        **_LATENT,
        q_lora_rank=None,
        scoring_func="softmax",
        topk_method="greedy",
    ),
    "glm4_moe": _small(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        **_SHARED,
        use_qk_norm=True,
        partial_rotary_factor=0.5,
        attention_bias=True,
        num_nextn_predict_layers=1,
    ),
}


def small_model(name: str, folder: Path) -> ModelGraph:
    """The graph of a small model, read from its `config.json` as any other."""
    (folder / "config.json").write_text(json.dumps(SMALL[name]))
    return read_model(str(folder))


def small_graph(name: str) -> ModelGraph:
    """The same graph without a folder."""
    return describe(SMALL[name], name).graph(name)
