"""Llama 4, Scout and Maverick: every n-th layer routed, experts stacked `[experts, input, output]`, a vision tower.

`intermediate_size` is the width of an expert and of the shared one, `intermediate_size_mlp` that of a dense layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from precc.graph.errors import FieldError
from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family, Row
from precc.syntax.words import Role

_TOWER = (
    *(
        fields.whole(f"vision_{name}", key=f"vision_config.{name}")
        for name in ("hidden_size", "intermediate_size", "image_size", "projector_input_dim", "projector_output_dim")
    ),
    fields.whole("vision_output", key="vision_config.vision_output_dim"),
    *(
        fields.whole(f"vision_{name}", key=f"vision_config.{name}", most=fields.MAX_LAYERS)
        for name in ("num_hidden_layers", "num_attention_heads", "num_channels", "patch_size")
    ),
)

_SIZES: Mapping[str, Callable[[Facts], int]] = {
    "vision": lambda f: f["vision_hidden_size"],
    "vision_mlp": lambda f: f["vision_intermediate_size"],
    "vision_in": lambda f: f["vision_projector_input_dim"],
    "vision_out": lambda f: f["vision_projector_output_dim"],
    "vision_seen": lambda f: f["vision_output"],
    "patch": lambda f: f["vision_num_channels"] * f["vision_patch_size"] ** 2,
    "positions": lambda f: (f["vision_image_size"] // f["vision_patch_size"]) ** 2 + 1,
}


def _derive(facts: Facts) -> Facts:
    every = facts["interleave_moe_layer_step"]
    layers = fields.sparse_layers(facts, lambda layer: (layer + 1) % every == 0)
    if facts["listed_moe_layers"] not in (None, layers["moe_layers"]):
        raise FieldError("moe_layers", list(facts["listed_moe_layers"]), f"every {every} layers, or absent")
    return {
        **fields.grouped_heads(facts),
        **fields.no_bias(facts),
        **layers,
        "n_shared_experts": 1,
        "shared_expert_intermediate_size": facts["moe_intermediate_size"],
    }


def _small(facts: Facts) -> Facts:
    """A tower whose patches are still shuffled four into one."""
    return {
        "vision_intermediate_size": 4 * facts["vision_hidden_size"],
        "vision_num_attention_heads": 2,
        **dict.fromkeys(("vision_projector_input_dim", "vision_projector_output_dim", "vision_output"), 256),
    }


_PARAMETERS = (
    Row("class_embedding", ("vision",), None, "class", protected=True),
    Row("positional_embedding_vlm", ("positions", "vision"), None, "positions", protected=True),
)
_PATCHES, _ = rows.tower_linear("patch_embedding.linear", "vision", "patch", "conv")
_ADAPTER = (
    rows.tower_linear("vision_adapter.mlp.fc1", "vision_in", "vision_mlp", "up")[0],
    rows.tower_linear("vision_adapter.mlp.fc2", "vision_out", "vision_out", "down")[0],
)
_BLOCK = (
    *(row for part in "qkvo" for row in rows.tower_linear(f"self_attn.{part}_proj", "vision", "vision", part)),
    *rows.tower_linear("mlp.fc1", "vision_mlp", "vision", "up"),
    *rows.tower_linear("mlp.fc2", "vision", "vision_mlp", "down"),
    *rows.tower_norm("input_layernorm"),
    *rows.tower_norm("post_attention_layernorm"),
)
_NORMS = (*rows.tower_norm("layernorm_pre"), *rows.tower_norm("layernorm_post"))
_PROJECTOR, _ = rows.tower_linear("linear_1", "hidden", "vision_seen", "fc")

FAMILY = Family(
    name="llama4",
    architectures=("Llama4ForConditionalGeneration",),
    model_types=("llama4",),
    text_model_type="llama4_text",
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        fields.whole("intermediate_size", key="intermediate_size_mlp"),
        *fields.moe("num_local_experts", "intermediate_size"),
        fields.whole("interleave_moe_layer_step", most=fields.MAX_LAYERS, default=1),
        replace(fields.layer_list("listed_moe_layers", key="moe_layers"), default=None),
        *_TOWER,
    ),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *rows.GROUPED_QUERY_ATTENTION,
            *rows.gated_mlp("feed_forward", layers="dense_layers"),
            rows.router("feed_forward.router"),
            *rows.stacked_experts("feed_forward.experts", transposed=True),
            *rows.gated_mlp("feed_forward.shared_expert", "shared", Role.SHARED_EXPERTS, layers="moe_layers"),
        ),
        root="language_model.model",
        head="language_model",
        more=(
            rows.tower(
                "vision_model",
                *_PARAMETERS,
                _PATCHES,
                *rows.tower_norm("layernorm_pre"),
                *rows.tower_norm("layernorm_post"),
            ),
            rows.tower("vision_model.model.layers.{l}", *_BLOCK, over="vision_num_hidden_layers"),
            rows.tower("vision_model", *_ADAPTER),
            rows.tower("multi_modal_projector", _PROJECTOR),
        ),
    ),
    derive=_derive,
    sizes=_SIZES,
    small=_small,
)
