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
    "glm_moe_dsa": {
        "architectures": ["GlmMoeDsaForCausalLM"],
        **_LATENT,
        **_SHARED,
        "num_nextn_predict_layers": 1,
        "index_n_heads": 4,
        "index_head_dim": 32,
        "index_topk": 8,
        "indexer_rope_interleave": True,
        "index_topk_freq": 2,
        "index_skip_topk_offset": 1,
    },
    "minimax_m2": {
        "architectures": ["MiniMaxM2ForCausalLM"],
        **_GROUPED,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "kimi_k25": {
        "architectures": ["KimiK25ForConditionalGeneration"],
        **_LATENT,
        **_SHARED,
        "vision_config": {
            "vt_hidden_size": 128,
            "vt_intermediate_size": 384,
            "vt_num_hidden_layers": 1,
            "vt_num_attention_heads": 2,
            "patch_size": 14,
            "init_pos_emb_height": 2,
            "init_pos_emb_width": 2,
            "merge_kernel_size": [2, 2],
            "text_hidden_size": 128,
        },
    },
    "gpt_oss": {
        "architectures": ["GptOssForCausalLM"],
        **_GROUPED,
        "attention_bias": True,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "gemma3_text": {"architectures": ["Gemma3ForCausalLM"], **_GROUPED},
    "gemma3": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        **_GROUPED,
        "vision_config": {
            "hidden_size": 128,
            "intermediate_size": 256,
            "image_size": 28,
            "patch_size": 14,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
        },
    },
    "qwen3_vl_moe": {
        "architectures": ["Qwen3VLMoeForConditionalGeneration"],
        **_GROUPED,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "vision_config": {
            "depth": 2,
            "hidden_size": 128,
            "intermediate_size": 256,
            "out_hidden_size": 128,
            "num_heads": 2,
            "num_position_embeddings": 16,
            "in_channels": 3,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "deepstack_visual_indexes": [0],
        },
    },
    "llama4": {
        "architectures": ["Llama4ForConditionalGeneration"],
        **_GROUPED,
        "intermediate_size_mlp": 384,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "vision_config": {
            "hidden_size": 128,
            "intermediate_size": 512,
            "image_size": 28,
            "patch_size": 14,
            "num_channels": 3,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "projector_input_dim": 256,
            "projector_output_dim": 256,
            "vision_output_dim": 256,
        },
    },
}

_DELTA: dict[str, Any] = {
    "num_hidden_layers": 2,
    "full_attention_interval": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
_SHARED_EXPERT: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128,
}
_TOWER = {**CONFIGS["qwen3_vl_moe"]["vision_config"], "deepstack_visual_indexes": []}
CONFIGS |= {
    "qwen3_next": {
        "architectures": ["Qwen3NextForCausalLM"],
        **_GROUPED,
        **_DELTA,
        **_SHARED_EXPERT,
        "num_nextn_predict_layers": 0,
    },
    "qwen3_5": {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        **_GROUPED,
        **_DELTA,
        "mtp_num_hidden_layers": 1,
        "vision_config": _TOWER,
    },
    "qwen3_5_moe": {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        **_GROUPED,
        **_DELTA,
        **_SHARED_EXPERT,
        "mtp_num_hidden_layers": 1,
        "vision_config": _TOWER,
    },
}


WITHOUT_TRAINER = ("deepseek_v4", "gemma4", "kimi_k3", "mimo_v2", "minimax_m3", "nemotron_h", "step3p7")
"""Families that Megatron-Core has no model of, or holds the rows of in an order that the names do not say."""


def config_of(family: str) -> dict[str, Any]:
    """The `config.json` of a family's small model."""
    return {**_COMMON, **CONFIGS[family]}


@cache
def model(family: str) -> ModelGraph:
    """A model of two layers: one dense and one with four experts where the family has both."""
    return describe(config_of(family), family).graph(f"small-{family}")
