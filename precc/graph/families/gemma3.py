"""Gemma 3 beside a SigLIP tower: the decoder of `gemma3_text` below `language_model.model`."""

from collections.abc import Callable, Mapping

from precc.graph.families import fields, gemma3_text, rows
from precc.graph.families.table import Facts, Family, Row

_TOWER = (
    *(
        fields.whole(f"vision_{name}", key=f"vision_config.{name}")
        for name in ("hidden_size", "intermediate_size", "image_size")
    ),
    fields.whole("vision_num_hidden_layers", key="vision_config.num_hidden_layers", most=fields.MAX_LAYERS),
    fields.whole("vision_num_attention_heads", key="vision_config.num_attention_heads", most=fields.MAX_LAYERS),
    fields.whole("vision_patch_size", key="vision_config.patch_size", most=fields.MAX_LAYERS),
)

_SIZES: Mapping[str, Callable[[Facts], int]] = {
    "vision": lambda f: f["vision_hidden_size"],
    "vision_mlp": lambda f: f["vision_intermediate_size"],
    "colours": lambda f: 3,
    "patch": lambda f: f["vision_patch_size"],
    "positions": lambda f: (f["vision_image_size"] // f["vision_patch_size"]) ** 2,
}


_PATCHES = Row(
    "embeddings.patch_embedding.weight", ("vision", "colours", "patch", "patch"), None, "conv", protected=True
)
_POSITIONS = Row("embeddings.position_embedding.weight", ("positions", "vision"), None, "positions", protected=True)
_BLOCK = (
    *rows.tower_norm("layer_norm1"),
    *rows.tower_norm("layer_norm2"),
    *(row for part in "qkv" for row in rows.tower_linear(f"self_attn.{part}_proj", "vision", "vision", part)),
    *rows.tower_linear("self_attn.out_proj", "vision", "vision", "o"),
    *rows.tower_linear("mlp.fc1", "vision_mlp", "vision", "up"),
    *rows.tower_linear("mlp.fc2", "vision", "vision_mlp", "down"),
)
_PROJECTION = Row("mm_input_projection_weight", ("vision", "hidden"), None, "fc", contracted=(0,), protected=True)

FAMILY = Family(
    name="gemma3",
    architectures=("Gemma3ForConditionalGeneration",),
    model_types=("gemma3",),
    text_model_type="gemma3_text",
    fields=(*gemma3_text.FIELDS, *_TOWER),
    blocks=rows.decoder(
        gemma3_text.LAYER,
        root="language_model.model",
        head="language_model",
        more=(
            rows.tower("vision_tower.vision_model", _PATCHES, rows.bias(_PATCHES, ""), _POSITIONS),
            rows.tower("vision_tower.vision_model.encoder.layers.{l}", *_BLOCK, over="vision_num_hidden_layers"),
            rows.tower("vision_tower.vision_model", *rows.tower_norm("post_layernorm")),
            rows.tower("multi_modal_projector", _PROJECTION, rows.norm("mm_soft_emb_norm", "vision")),
        ),
    ),
    derive=gemma3_text.derive,
    sizes=_SIZES,
    small=lambda facts: {"vision_num_attention_heads": 2},
)
