"""MiniMax-M3: grouped attention over blocks that an indexer picks, routed experts beside one shared, a vision tower.

`intermediate_size` is the width of an expert, `dense_intermediate_size` that of the first layers. `num_mtp_modules`
announces MTP layers, but SGLang's class has none.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from precc.graph.errors import FieldError
from precc.graph.families import fields, rows
from precc.graph.families.table import Block, Facts, Family, Row
from precc.syntax.words import Role

_SPARSE = "sparse_attention_config"
_MERGED = "vision_config.img_token_compression_config"

_TOWER = (
    *(
        fields.whole(f"vision_{name}", key=f"vision_config.{name}")
        for name in ("hidden_size", "intermediate_size", "projection_dim")
    ),
    *(
        fields.whole(f"vision_{name}", key=f"vision_config.{name}", most=fields.MAX_LAYERS)
        for name in ("num_hidden_layers", "num_attention_heads", "num_channels", "patch_size")
    ),
    *(
        fields.whole(f"vision_{name}", key=f"{_MERGED}.{name}", most=fields.MAX_LAYERS)
        for name in ("spatial_merge_size", "temporal_patch_size")
    ),
)

_SIZES: Mapping[str, Callable[[Facts], int]] = {
    "vision": lambda f: f["vision_hidden_size"],
    "vision_mlp": lambda f: f["vision_intermediate_size"],
    "vision_out": lambda f: f["vision_projection_dim"],
    "colours": lambda f: f["vision_num_channels"],
    "frames": lambda f: f["vision_temporal_patch_size"],
    "patch": lambda f: f["vision_patch_size"],
    "merged": lambda f: f["hidden_size"] * f["vision_spatial_merge_size"] ** 2,
}

_PATTERNS = ("routed_layer_pattern", "indexed_layer_pattern", "valueless_layer_pattern")


def _derive(facts: Facts) -> Facts:
    for fact in _PATTERNS:
        fields.one_a_layer(facts, fact)
    if facts["vision_projection_dim"] != facts["hidden_size"]:
        allowed = f"the decoder's hidden_size ({facts['hidden_size']})"
        raise FieldError("vision_config.projection_dim", facts["vision_projection_dim"], allowed)
    wide = facts["n_shared_experts"] * facts["moe_intermediate_size"]
    if facts["shared_expert_intermediate_size"] != wide:
        found = facts["shared_expert_intermediate_size"]
        raise FieldError("shared_intermediate_size", found, f"the width of n_shared_experts experts ({wide})")
    indexed, valueless = facts["indexed_layer_pattern"], facts["valueless_layer_pattern"]
    if any(index and not bare for index, bare in zip(indexed, valueless, strict=True)):
        raise FieldError(f"{_SPARSE}.sparse_disable_index_value", list(valueless), "1 wherever attention is sparse")
    return {
        **fields.grouped_heads(facts),
        **fields.no_bias(facts),
        **fields.sparse_layers(facts, lambda layer: bool(facts["routed_layer_pattern"][layer])),
        "correction_bias": facts["use_routing_bias"],
        "indexer_layers": tuple(layer for layer, index in enumerate(indexed) if index),
    }


def _small(facts: Facts) -> Facts:
    """What stays as wide as the decoder, and as its experts."""
    return {
        "vision_num_attention_heads": 2,
        "vision_projection_dim": facts["hidden_size"],
        "shared_expert_intermediate_size": facts["n_shared_experts"] * facts["moe_intermediate_size"],
    }


# --- the decoder -------------------------------------------------------------------------------------


def _index(part: str, size: str) -> Row:
    return Row(
        f"self_attn.index_{part}_proj.weight",
        (size, "hidden"),
        Role.INDEXER,
        f"index_{part}",
        frozenset({Role.ATTENTION}),
        contracted=(1,),
        sglang="self_attn.index_qkv",
        scale_group="self_attn.index_qkv",
        layers="indexer_layers",
    )


def _index_norm(part: str) -> Row:
    row = rows.norm(f"self_attn.index_{part}_norm", "index_head", within=frozenset({Role.ATTENTION, Role.INDEXER}))
    return replace(row, layers="indexer_layers")


_INDEXER = (_index("q", "index_query"), _index("k", "index_head"), _index_norm("q"), _index_norm("k"))
_MOE = "block_sparse_moe"
_LAYER = (
    *rows.layer_norms(),
    *rows.GROUPED_QUERY_ATTENTION,
    *_INDEXER,
    *rows.DENSE_MLP,
    rows.router(f"{_MOE}.gate"),
    replace(rows.CORRECTION_BIAS, name=f"{_MOE}.e_score_correction_bias"),
    *rows.routed_experts(f"{_MOE}.experts", ("w1", "w3", "w2")),
    *rows.gated_mlp(
        f"{_MOE}.shared_experts", "shared", Role.SHARED_EXPERTS, layers="moe_layers", when="n_shared_experts"
    ),
)

# --- the tower ---------------------------------------------------------------------------------------


def _linear(name: str, output: str, input: str, part: str) -> tuple[Row, ...]:
    weight = Row(f"{name}.weight", (output, input), None, part, contracted=(1,))
    return weight, rows.bias(weight, "")


def _norm(name: str) -> tuple[Row, ...]:
    weight = rows.norm(name, "vision")
    return weight, replace(weight, name=f"{name}.bias", part="bias")


def _tower(prefix: str, *table: Row, over: str = "") -> Block:
    return Block(prefix, table, over=over, outer=Role.VISION, outer_depth=1)


_PATCHES = Row(
    "embeddings.patch_embedding.weight",
    ("vision", "colours", "frames", "patch", "patch"),
    None,
    "conv",
    protected=True,
)
_BLOCK = (
    *_norm("layer_norm1"),
    *_norm("layer_norm2"),
    *(row for part in "qkv" for row in _linear(f"self_attn.{part}_proj", "vision", "vision", part)),
    *_linear("self_attn.out_proj", "vision", "vision", "o"),
    *_linear("mlp.fc1", "vision_mlp", "vision", "up"),
    *_linear("mlp.fc2", "vision", "vision_mlp", "down"),
)
_PROJECTOR = (*_linear("linear_1", "vision_out", "vision", "up"), *_linear("linear_2", "hidden", "vision_out", "down"))
_MERGER = (*_linear("linear_1", "vision_out", "merged", "up"), *_linear("linear_2", "hidden", "vision_out", "down"))

FAMILY = Family(
    name="minimax_m3",
    architectures=("MiniMaxM3SparseForConditionalGeneration",),
    model_types=("minimax_m3_vl",),
    text_model_type="minimax_m3_vl_text",
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        fields.flag("use_qk_norm", default=True),
        fields.flag("use_routing_bias", default=True),
        fields.whole("index_n_heads", key=f"{_SPARSE}.sparse_num_index_heads"),
        fields.whole("index_head_dim", key=f"{_SPARSE}.sparse_index_dim"),
        fields.pattern("indexed_layer_pattern", key=f"{_SPARSE}.sparse_attention_freq"),
        fields.pattern("valueless_layer_pattern", key=f"{_SPARSE}.sparse_disable_index_value"),
        fields.pattern("routed_layer_pattern", key="moe_layer_freq"),
        fields.whole("intermediate_size", key="dense_intermediate_size"),
        *fields.moe("num_local_experts", "intermediate_size"),
        fields.SHARED_EXPERTS,
        fields.whole("shared_expert_intermediate_size", key="shared_intermediate_size", least=0),
        *_TOWER,
    ),
    blocks=rows.decoder(
        _LAYER,
        root="language_model.model",
        head="language_model",
        more=(
            _tower("vision_tower.vision_model", _PATCHES, *_norm("pre_layrnorm")),
            _tower("vision_tower.vision_model.encoder.layers.{l}", *_BLOCK, over="vision_num_hidden_layers"),
            _tower("multi_modal_projector", *_PROJECTOR),
            _tower("patch_merge_mlp", *_MERGER),
        ),
    ),
    derive=_derive,
    sizes=_SIZES,
    small=_small,
)
