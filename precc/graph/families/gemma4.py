"""Gemma 4 without audio: sliding and full attention of other widths, a dense MLP with or without routed experts beside.

Full attention takes its keys for its values: it has no `v_proj`. The sizes with inputs for each layer (E2B, E4B) have
tensors that are not in this table.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from precc.graph.errors import FieldError
from precc.graph.families import fields, rows
from precc.graph.families.table import Block, Facts, Family, Row
from precc.syntax.words import Role

_KINDS = ("sliding_attention", "full_attention")

_TOWER = (
    *(
        fields.whole(f"vision_{name}", key=f"vision_config.{name}")
        for name in ("hidden_size", "intermediate_size", "head_dim", "position_embedding_size")
    ),
    *(
        fields.whole(f"vision_{name}", key=f"vision_config.{name}", most=fields.MAX_LAYERS)
        for name in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "patch_size")
    ),
    *(
        replace(fields.flag(f"vision_{name}", default), key=f"vision_config.{name}")
        for name, default in (("standardize", False), ("use_clipped_linears", False))
    ),
)

_FIELDS = (
    *fields.DECODER,
    fields.flag("tie_word_embeddings", default=True),
    fields.KEY_VALUE_HEADS,
    fields.whole("num_global_key_value_heads"),
    fields.HEAD_DIM,
    fields.whole("global_head_dim"),
    fields.DENSE_MLP,
    fields.word_list("layer_types", _KINDS),
    fields.flag("attention_k_eq_v"),
    fields.flag("use_double_wide_mlp"),
    fields.flag("enable_moe_block"),
    *(
        fields.whole(name, least=0, default=0)
        for name in ("hidden_size_per_layer_input", "num_kv_shared_layers", "moe_intermediate_size")
    ),
    fields.whole("num_experts", least=0, most=fields.MAX_EXPERTS, default=0),
    fields.whole("num_experts_per_tok", key="top_k_experts", least=0, most=fields.MAX_EXPERTS, default=0),
)

_SIZES: Mapping[str, Callable[[Facts], int]] = {
    "full_head": lambda f: f["global_head_dim"],
    "full_query": lambda f: f["num_attention_heads"] * f["global_head_dim"],
    "full_key_value": lambda f: f["num_global_key_value_heads"] * f["global_head_dim"],
    "axes": lambda f: 2,
    "positions": lambda f: f["vision_position_embedding_size"],
    "pixels": lambda f: 3 * f["vision_patch_size"] ** 2,
    "vision": lambda f: f["vision_hidden_size"],
    "vision_mlp": lambda f: f["vision_intermediate_size"],
    "vision_head": lambda f: f["vision_head_dim"],
    "vision_query": lambda f: f["vision_num_attention_heads"] * f["vision_head_dim"],
    "vision_key_value": lambda f: f["vision_num_key_value_heads"] * f["vision_head_dim"],
}

_ALONE = {
    "attention_k_eq_v": True,
    "use_double_wide_mlp": False,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
}
"""The fields of which this table knows one value."""


def _derive(facts: Facts) -> Facts:
    for fact, value in _ALONE.items():
        fields.only(facts, fact, value)
    if facts["vision_use_clipped_linears"]:
        raise FieldError("vision_config.use_clipped_linears", True, "false in this family")
    heads, groups = facts["num_attention_heads"], facts["num_global_key_value_heads"]
    if heads % groups:
        raise FieldError("num_global_key_value_heads", groups, f"a divisor of num_attention_heads ({heads})")
    fields.one_a_layer(facts, "layer_types")
    kinds = tuple(enumerate(facts["layer_types"]))
    return {
        **fields.grouped_heads(facts),
        **fields.no_bias(facts),
        **fields.sparse_layers(facts, lambda layer: bool(facts["enable_moe_block"])),
        "use_qk_norm": True,
        "sliding_layers": tuple(layer for layer, kind in kinds if kind == "sliding_attention"),
        "full_layers": tuple(layer for layer, kind in kinds if kind == "full_attention"),
    }


# --- the decoder -------------------------------------------------------------------------------------

_WIDER = {"query": "full_query", "key_value": "full_key_value", "head": "full_head"}
_SLIDING = tuple(replace(row, layers="sliding_layers") for row in rows.GROUPED_QUERY_ATTENTION)
_FULL = tuple(
    replace(row, shape=tuple(_WIDER.get(size, size) for size in row.shape), layers="full_layers")
    for row in rows.GROUPED_QUERY_ATTENTION
    if ".v_proj." not in row.name
)


def _scale(name: str, size: str) -> Row:
    return Row(f"router.{name}", (size,), Role.ROUTER, "scale", protected=True, layers="moe_layers")


_NORMS_OF_EXPERTS = (
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
)

_LAYER = (
    Row("layer_scalar", ("one",), None, "scale", protected=True),
    rows.norm("input_layernorm", "hidden"),
    *_SLIDING,
    *_FULL,
    rows.norm("post_attention_layernorm", "hidden"),
    rows.norm("pre_feedforward_layernorm", "hidden"),
    *rows.gated_mlp(),
    rows.norm("post_feedforward_layernorm", "hidden"),
    rows.router("router.proj"),
    _scale("scale", "hidden"),
    _scale("per_expert_scale", "experts"),
    *rows.stacked_experts("experts"),
    *(rows.norm(name, "hidden", when="enable_moe_block") for name in _NORMS_OF_EXPERTS),
)

# --- the tower ---------------------------------------------------------------------------------------


def _linear(name: str, output: str, input: str, part: str) -> Row:
    return Row(f"{name}.weight", (output, input), None, part, contracted=(1,))


def _tower(prefix: str, *table: Row, over: str = "") -> Block:
    return Block(prefix, table, over=over, outer=Role.VISION, outer_depth=2)


def _standard(name: str) -> Row:
    return Row(name, ("vision",), None, "scale", protected=True, when="vision_standardize")


_PATCHES = (
    Row(
        "patch_embedder.position_embedding_table",
        ("axes", "positions", "vision"),
        None,
        "positions",
        protected=True,
    ),
    _linear("patch_embedder.input_proj", "vision", "pixels", "conv"),
)
_BLOCK = (
    _linear("self_attn.q_proj.linear", "vision_query", "vision", "q"),
    *(_linear(f"self_attn.{part}_proj.linear", "vision_key_value", "vision", part) for part in "kv"),
    _linear("self_attn.o_proj.linear", "vision", "vision_query", "o"),
    *(rows.norm(f"self_attn.{part}_norm", "vision_head") for part in "qk"),
    *(_linear(f"mlp.{part}_proj.linear", "vision_mlp", "vision", part) for part in ("gate", "up")),
    _linear("mlp.down_proj.linear", "vision", "vision_mlp", "down"),
    rows.norm("input_layernorm", "vision"),
    rows.norm("post_attention_layernorm", "vision"),
    rows.norm("pre_feedforward_layernorm", "vision"),
    rows.norm("post_feedforward_layernorm", "vision"),
)

FAMILY = Family(
    name="gemma4",
    architectures=("Gemma4ForConditionalGeneration",),
    model_types=("gemma4",),
    text_model_type="gemma4_text",
    fields=(*_FIELDS, *_TOWER),
    blocks=rows.decoder(
        _LAYER,
        root="model.language_model",
        more=(
            _tower("model.vision_tower", _standard("std_bias"), _standard("std_scale"), *_PATCHES),
            _tower("model.vision_tower.encoder.layers.{l}", *_BLOCK, over="vision_num_hidden_layers"),
            _tower("model.embed_vision", _linear("embedding_projection", "hidden", "vision", "fc")),
        ),
    ),
    derive=_derive,
    sizes=_SIZES,
    small=lambda facts: {"vision_num_attention_heads": 2, "vision_num_key_value_heads": 2, "vision_head_dim": 64},
)
