"""SGLang's model classes: what each fuses, and how it names its modules to its config, in a row each.

The rows are those of 0.5.23, as its classes are built.
"""

from __future__ import annotations

from collections.abc import Mapping

from precc.syntax.words import Role
from precc_sglang.model_class import ModelClass, Packed, Renaming

QKV: Packed = {"qkv_proj": ("q_proj", "k_proj", "v_proj")}
GATE_UP: Packed = {"gate_up_proj": ("gate_proj", "up_proj")}
DELTA_NET: Packed = {"in_proj_qkvz": ("in_proj_qkv", "in_proj_z"), "in_proj_ba": ("in_proj_b", "in_proj_a")}
QKV_A: Packed = {"fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa")}

COMPRESSED: Packed = {
    "wqkv_a": ("wq_a", "wkv"),
    "compressor.wkv_gate": ("compressor.wkv", "compressor.wgate"),
}


_DENSE = {**QKV, **GATE_UP}
_HYBRID = {**QKV, **GATE_UP, **DELTA_NET}
_WRAPPED: Renaming = (("model.language_model", "model"), ("model.visual", "visual"), ("attn.qkv", "attn.qkv_proj"))
_QWEN3_VL: tuple[Renaming, Renaming] = (
    (("attn.qkv", "attn.qkv_proj"),),
    (
        ("model.language_model.", "language_model.model."),
        ("model.visual.", "visual."),
        ("lm_head.", "language_model.lm_head."),
        ("model.", "language_model.model."),
    ),
)
_QWEN3_5: Renaming = (
    *_WRAPPED,
    ("self_attn", ""),
    ("mtp.layers", "model.layers"),
    ("mtp.norm", "model.norm"),
    ("mtp", ""),
)
_KIMI: Renaming = (
    ("wqkv", "attn.qkv_proj"),
    ("wo", "attn.proj"),
    ("mm_projector.proj.0", "mm_projector.linear_1"),
    ("mm_projector.proj.2", "mm_projector.linear_2"),
)
_NEMOTRON: Renaming = (
    ("backbone", "model"),
    ("embeddings", "embed_tokens"),
    ("mtp.layers", "model.layers"),
    ("A_log", "A"),
)
INDEX_QKV: Packed = {"index_qkv_proj": ("index_q_proj", "index_k_proj")}
_MINIMAX_M3: Renaming = (("block_sparse_moe", "mlp"),)
_MINIMAX_M3_TREE: Renaming = (
    *_MINIMAX_M3,
    ("language_model", ""),
    ("mlp.fc1", "fc1"),
    ("mlp.fc2", "fc2"),
    ("self_attn.out_proj", "self_attn.proj"),
    ("multi_modal_projector", "vision_tower.multi_modal_projector"),
    ("patch_merge_mlp", "vision_tower.patch_merge_mlp"),
)
KDA: Packed = {"fused_qkvg_proj": ("q_proj", "k_proj", "v_proj", "g_proj")}
_KDA_CONV: Packed = {"qkv_conv1d": ("q_conv1d", "k_conv1d", "v_conv1d")}
_KIMI_K3_UNASKING = frozenset(
    (
        "self_attention_res_proj",
        "mlp_res_proj",
        "output_attn_res_proj",
        "routed_expert_down_proj",
        "routed_expert_up_proj",
    )
)
_MOE: Renaming = (("block_sparse_moe", "mlp"),)
_TRTLLM = frozenset({"flashinfer_trtllm_routed", "flashinfer_trtllm"})
_SITU: Mapping[str, frozenset[str]] = {
    "unquantized": _TRTLLM,
    "mxfp8": _TRTLLM,
    "fp8_block": _TRTLLM,
    "mxfp4_weights": frozenset({"triton_kernel"}),
}
_STEP_EXPERTS: Renaming = tuple((f"moe.{part}_proj", f"moe.experts.{part}_proj") for part in ("gate", "up", "down"))
_STEP_TREE: Renaming = (
    ("model.layers", "language_model.model.layers"),
    ("model.embed_tokens", "language_model.model.embed_tokens"),
    ("model.norm", "language_model.model.norm"),
    ("lm_head", "language_model.lm_head"),
)
_STEP_TOWER: Renaming = (
    ("in_proj_weight", "qkv_proj.weight"),
    ("in_proj_bias", "qkv_proj.bias"),
    ("attn.out_proj", "attn.proj"),
    ("mlp.c_fc", "mlp.fc1"),
    ("mlp.c_proj", "mlp.fc2"),
)
_STEP_MAPPER: Renaming = (
    ("model.language_model.", "language_model.model."),
    ("model.vision_model", "vision_model"),
    ("model.vit_large_projector", "vit_large_projector"),
)
_MIMO_DRAFT: Renaming = (("pre_mlp_layernorm", "post_attention_layernorm"),)
_GEMMA4: Renaming = (("experts", "moe.experts"),)
_GEMMA4_TREE: Renaming = (
    *_GEMMA4,
    ("router.per_expert_scale", "moe.per_expert_scale"),
    ("model", ""),
    *((f"{part}_proj.linear", f"qkv.{part}_proj") for part in "qkv"),
    *((f"{part}_proj.linear", f"gate_up.{part}_proj") for part in ("gate", "up")),
)
_GEMMA4_ASKS: Renaming = (
    *_GEMMA4,
    *((f"{part}_proj.linear", f"{part}_proj") for part in ("q", "k", "v", "gate", "up")),
)
_V4_LAYER: Renaming = (
    ("attn", "self_attn"),
    ("ffn", "mlp"),
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("w1", "gate_proj"),
    ("w2", "down_proj"),
    ("w3", "up_proj"),
)
_V4_APART: Renaming = (("compressor.norm", "compressor.keys_norm"),)
_V4_TOGETHER: Renaming = (("compressor.keys_norm", "compressor.norm"),)
_V4: Renaming = (
    *_V4_APART,
    ("layers", "model.layers"),
    *_V4_LAYER,
    ("embed", "model.embed_tokens"),
    ("head", "lm_head"),
    ("norm", "model.norm"),
    *((f"hc_head_{word}", f"model.hc_head_{word}") for word in ("fn", "base", "scale")),
    *_V4_TOGETHER,
)
_V4_DRAFT: Renaming = (*_V4_APART, *_V4_LAYER, ("norm", "shared_head.norm"), *_V4_TOGETHER)
_LATENT = {**QKV_A, **GATE_UP}
_LLAMA = ModelClass("LlamaForCausalLM", _DENSE, {}, block_scales_load=False)
MIXTRAL = ModelClass("MixtralForCausalLM", QKV, {}, head=False, asks=(("model.layers", "layers"),))
UNFUSED_MIXTRAL = ModelClass("QuantMixtralForCausalLM", QKV, {}, head=False)
_DEEPSEEK = ModelClass("DeepseekV2ForCausalLM", _LATENT, QKV_A)

CLASSES: dict[str, ModelClass] = {
    "LlamaForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": ModelClass("Qwen2ForCausalLM", _DENSE, {}),
    "Qwen3ForCausalLM": ModelClass("Qwen3ForCausalLM", _DENSE, {}),
    "Qwen3MoeForCausalLM": ModelClass("Qwen3MoeForCausalLM", _DENSE, _DENSE),
    "MixtralForCausalLM": MIXTRAL,
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": ModelClass(
        "DeepseekV3ForCausalLM",
        _LATENT,
        QKV_A,
        draft_mapper=("model.layers.61", "model.decoder"),
        drops_nvfp4_draft=True,
        folds_shared="count",
    ),
    "DeepseekV32ForCausalLM": ModelClass(
        "DeepseekV32ForCausalLM",
        _LATENT,
        QKV_A,
        draft_mapper=("model.layers.61", "model.decoder"),
        drops_nvfp4_draft=True,
    ),
    "Glm4MoeForCausalLM": ModelClass("Glm4MoeForCausalLM", _DENSE, {}, drops_nvfp4_draft=True, folds_shared="any"),
    "Qwen3NextForCausalLM": ModelClass(
        "Qwen3NextForCausalLM",
        _DENSE,
        _DENSE,
        folds_shared="width",
        never_under=("modelopt_fp4", frozenset(QKV["qkv_proj"])),
        tree=(("self_attn", ""),),
        drafts=False,
    ),
    "Qwen3_5ForConditionalGeneration": ModelClass(
        "Qwen3_5ForConditionalGeneration", _HYBRID, _HYBRID, drops_nvfp4_draft=True, tree=_QWEN3_5
    ),
    "Qwen3_5MoeForConditionalGeneration": ModelClass(
        "Qwen3_5MoeForConditionalGeneration", _HYBRID, _HYBRID, drops_nvfp4_draft=True, tree=_QWEN3_5
    ),
    "Qwen3VLMoeForConditionalGeneration": ModelClass(
        "Qwen3VLMoeForConditionalGeneration", _DENSE, {}, tree=_WRAPPED, mapper=_QWEN3_VL
    ),
    "GptOssForCausalLM": ModelClass(
        "GptOssForCausalLM",
        QKV,
        {},
        head=False,
        never=frozenset({Role.ATTENTION}),
        experts="bare",
        mxfp4="stacked",
    ),
    "GlmMoeDsaForCausalLM": ModelClass(
        "GlmMoeDsaForCausalLM", _LATENT, QKV_A, drops_nvfp4_draft=True, folds_shared="count"
    ),
    "Gemma3ForCausalLM": ModelClass("Gemma3ForCausalLM", _DENSE, _DENSE),
    "Gemma3ForConditionalGeneration": ModelClass(
        "Gemma3ForConditionalGeneration", _DENSE, _DENSE, tree=(("self_attn.out_proj", "self_attn.proj"),)
    ),
    "Gemma4ForConditionalGeneration": ModelClass(
        "Gemma4ForConditionalGeneration", _DENSE, _DENSE, tree=_GEMMA4_TREE, asks=_GEMMA4_ASKS
    ),
    "Llama4ForConditionalGeneration": ModelClass(
        "Llama4ForConditionalGeneration", _DENSE, _DENSE, text_only=True, permutes_queries=True
    ),
    "KimiK25ForConditionalGeneration": ModelClass(
        "KimiK25ForConditionalGeneration",
        _LATENT,
        QKV_A,
        tree=_KIMI,
        asks=(("language_model", ""),),
        mapper=((), (("language_model.layers.", "language_model.model.layers."),)),
    ),
    "KimiK3ForConditionalGeneration": ModelClass(
        "KimiK3ForConditionalGeneration",
        {**_LATENT, **KDA, **_KDA_CONV},
        {**QKV, **GATE_UP, **KDA, **_KDA_CONV},
        unasking=_KIMI_K3_UNASKING,
        alone=frozenset({(Role.ATTENTION, "g_proj")}),
        mxfp4="packed",
        joins=frozenset({"f_a_proj", "b_proj", "f_b_proj"}),
        blocks_below=True,
        unfit=_SITU,
        tree=_MOE,
        asks=(("language_model", ""), *_MOE),
        mapper=(((".block_sparse_moe.", ".mlp."),), (("language_model.layers.", "language_model.model.layers."),)),
    ),
    "Step3p7ForConditionalGeneration": ModelClass(
        "Step3p7ForConditionalGeneration",
        _DENSE,
        {},
        unasking=frozenset({"g_proj"}),
        experts="stacked",
        fills_all=True,
        tree=(*_STEP_TREE, *_STEP_EXPERTS, *_STEP_TOWER),
        asks=(*_STEP_TREE, *_STEP_EXPERTS, ("moe", "mlp")),
        mapper=((), _STEP_MAPPER),
        bare_draft=True,
    ),
    "MiniMaxM3SparseForConditionalGeneration": ModelClass(
        "MiniMaxM3SparseForConditionalGeneration",
        {**_DENSE, **INDEX_QKV},
        {**_DENSE, **INDEX_QKV},
        folds_shared="any",
        tree=_MINIMAX_M3_TREE,
        asks=_MINIMAX_M3,
        mapper=(((".block_sparse_moe.", ".mlp."),), ()),
        idle=frozenset({"vision_tower.vision_model.post_layernorm"}),
    ),
    "MiMoV2FlashForCausalLM": ModelClass(
        "MiMoV2FlashForCausalLM",
        _DENSE,
        {},
        draft_tree=_MIMO_DRAFT,
        draft_layer="mtp_block",
    ),
    "DeepseekV4ForCausalLM": ModelClass(
        "DeepseekV4ForCausalLM",
        {**COMPRESSED, **GATE_UP},
        {},
        only_under=("fp8", frozenset({"wo_a"})),
        fp8_beside_fp4=True,
        mxfp4="beside",
        tree=_V4,
        draft_tree=_V4_DRAFT,
        draft_head="model.shared_head.head",
        asks=_V4,
    ),
    "MiniMaxM2ForCausalLM": ModelClass("MiniMaxM2ForCausalLM", _DENSE, _DENSE, head=False),
    "NemotronHForCausalLM": ModelClass(
        "NemotronHForCausalLM",
        QKV,
        QKV,
        tree=_NEMOTRON,
        asks=(("backbone", "model"),),
        mapper=((), (("backbone.", "model."),)),
        asking=frozenset({"eh_proj"}),
    ),
}
"""By the architecture that `config.json` names."""

MIXTRAL_WITH_EXPERT_LAYER = frozenset({"", "fp8", "compressed-tensors"})
"""The methods under which Mixtral is built with one expert layer; any other builds one module an expert."""
