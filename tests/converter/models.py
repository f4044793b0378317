"""Small models of every family, as the tests of names and of live export use them."""

from __future__ import annotations

from functools import cache
from typing import Any

from precc.graph.config import describe
from precc.graph.model import ModelGraph

_COMMON: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "torch_dtype": "bfloat16",
}
_GROUPED: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 32}
_LATENT: dict[str, Any] = {
    "q_lora_rank": 64,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
}
_SHARED: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], **_GROUPED, "attention_bias": True, "mlp_bias": True},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], **_GROUPED, "tie_word_embeddings": True},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], **_GROUPED, "tie_word_embeddings": True},
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        **_GROUPED,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "mlp_only_layers": [0],
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"],
        **_GROUPED,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "deepseek_v2": {"architectures": ["DeepseekV2ForCausalLM"], **_LATENT, **_SHARED, "q_lora_rank": None},
    "deepseek_v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        **_LATENT,
        **_SHARED,
        "num_nextn_predict_layers": 1,
    },
    "deepseek_v32": {
        "architectures": ["DeepseekV32ForCausalLM"],
        **_LATENT,
        **_SHARED,
        "num_nextn_predict_layers": 1,
        "index_n_heads": 4,
        "index_head_dim": 32,
        "index_topk": 8,
    },
    "glm4_moe": {
        "architectures": ["Glm4MoeForCausalLM"],
        **_GROUPED,
        **_SHARED,
        "attention_bias": True,
        "use_qk_norm": True,
        "num_nextn_predict_layers": 1,
    },
}


def config_of(family: str) -> dict[str, Any]:
    """The `config.json` of a family's small model."""
    return {**_COMMON, **CONFIGS[family]}


@cache
def model(family: str) -> ModelGraph:
    """A model of two layers: one dense and one with four experts where the family has both."""
    return describe(config_of(family), family).graph(f"small-{family}")
