"""What a `config.json` says beside what decides about tensors, for an engine that builds a model from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precc.graph.config import TEXT

_ROPE = {"rope_theta": 10000.0, "max_position_embeddings": 4096}
COMMON: Mapping[str, Any] = {**_ROPE, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
_GROUPS = {"n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0, "norm_topk_prob": True}
_YARN = {
    "type": "yarn",
    "rope_type": "deepseek_yarn",
    "factor": 4,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 1024,
}
_LATENT = {**_GROUPS, "rope_scaling": _YARN}
_ROTATED = {"rope_type": "default", "mrope_interleaved": True}
_PARTLY = {"partial_rotary_factor": 0.25, "norm_topk_prob": True}
_QWEN3_5 = {
    **_PARTLY,
    "rope_parameters": {
        **_ROTATED,
        "mrope_section": [11, 11, 10],
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
    },
}

_GEMMA3 = {"sliding_window": 512, "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh"}

_GEMMA4 = {
    "hidden_activation": "gelu_pytorch_tanh",
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
    },
}

_OTHER = "attention_other_setting"
_STEP = {"rope_theta": 1e4, "partial_rotary_factors": 1.0, "swiglu_limits": 0.0, "swiglu_limits_shared": 0.0}
_STEP_ENTRIES = 48
"""The entries that these lists have in every release, one for each layer of the decoder and of MTP."""

UNSEEN: Mapping[str, Mapping[str, Any]] = {
    "qwen3_moe": {"norm_topk_prob": True},
    "qwen3_next": _PARTLY,
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5,
    "qwen3_vl_moe": {"norm_topk_prob": True, "rope_scaling": {**_ROTATED, "mrope_section": [24, 20, 20]}},
    "deepseek_v2": {**_LATENT, "scoring_func": "softmax", "topk_method": "greedy"},
    "deepseek_v3": {**_LATENT, "scoring_func": "sigmoid"},
    "deepseek_v32": {**_LATENT, "scoring_func": "sigmoid"},
    "deepseek_v4": {
        "qk_rope_head_dim": 64,
        "rope_scaling": {**_YARN, "rope_type": "yarn"},
        "sliding_window": 128,
        "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "swiglu_limit": 10.0,
        "routed_scaling_factor": 1.5,
        "compress_rope_theta": 40000.0,
        "hc_eps": 1e-6,
        "hc_sinkhorn_iters": 20,
    },
    "gemma3_text": _GEMMA3,
    "gemma3": _GEMMA3,
    "gemma4": _GEMMA4,
    "gpt_oss": {"sliding_window": 128, "swiglu_limit": 7.0},
    "glm4_moe": {**_GROUPS, "partial_rotary_factor": 0.5},
    "glm_moe_dsa": {**_LATENT, "scoring_func": "sigmoid"},
    "kimi_k25": {**_LATENT, "scoring_func": "sigmoid", f"{TEXT}.architectures": ["DeepseekV3ForCausalLM"]},
    "minimax_m3": {
        "scoring_func": "sigmoid",
        "qk_norm_type": "per_head",
        "rotary_dim": 64,
        "use_gemma_norm": True,
        "hidden_act": "swigluoai",
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
        "sparse_attention_config.sparse_topk_blocks": 16,
        "sparse_attention_config.sparse_block_size": 128,
        "sparse_attention_config.use_sparse_attention": True,
        "vision_config.image_size": 2016,
        "vision_config.vision_segment_max_frames": 4,
        "vision_config.position_embedding_type": "rope",
        "vision_config.rope_mode": "3d",
        "vision_config.rope_theta": 10000.0,
        "vision_config.hidden_act": "gelu",
        "vision_config.layer_norm_eps": 1e-5,
    },
    "mimo_v2": {
        **_GROUPS,
        "rope_scaling": {"rope_type": "default", **_ROPE},
        "scoring_func": "sigmoid",
        "layernorm_epsilon": 1e-6,
        "partial_rotary_factor": 0.5,
        "sliding_window": 128,
        "sliding_window_size": 128,
    },
    "kimi_k3": {
        "hidden_act": "situ",
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0,
        "mla_use_nope": True,
        "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid",
        "num_expert_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "linear_attn_config.gate_lower_bound": -5.0,
    },
    "step3p7": {
        **{name: [value] * _STEP_ENTRIES for name, value in _STEP.items()},
        "rope_scaling": None,
        "yarn_only_types": ["full_attention"],
        "sliding_window": 512,
        "moe_router_activation": "sigmoid",
        "moe_router_scaling_factor": 3.0,
        "need_fp32_gate": True,
        "norm_expert_weight": True,
        f"{_OTHER}.attention_type": "sliding_attention",
        "allow_global_per_layer_attribute_access": True,  # the code that a checkpoint brings has no such guard
    },
    "minimax_m2": {"scoring_func": "sigmoid", "qk_norm_type": "per_layer", "rotary_dim": 64},
    "nemotron_h": {**_GROUPS, "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "layer_norm_epsilon": 1e-5},
}
"""Fields that no tensor depends on and that a family's configuration class wants, beside the common ones."""
