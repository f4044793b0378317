"""Kimi-K2.5: Kimi-K2 below `language_model`, a vision tower, and a projector that merges its patches.

The tower's fields begin with `vt_`; SGLang 0.5.23 reads them without, and then at their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from precc.graph.families import deepseek_v3, fields, rows
from precc.graph.families.table import Facts, Family, Row

_SECTION = "vision_config"
_TWICE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


def _bare(name: str) -> fields.Field:
    """The same field without its prefix, where it is there."""
    default = lambda facts: facts[f"vision_{name}"]  # noqa: E731 - bound to this name
    return fields.whole(f"vision_bare_{name}", key=f"{_SECTION}.{name}", default=default)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(fields.is_integer(side, 1, 64) for side in value)


_VISION = (
    *(fields.whole(f"vision_{name}", key=f"{_SECTION}.vt_{name}") for name in _TWICE),
    *(_bare(name) for name in _TWICE),
    fields.whole("vision_patch_size", key=f"{_SECTION}.patch_size"),
    fields.whole("vision_height", key=f"{_SECTION}.init_pos_emb_height"),
    fields.whole("vision_width", key=f"{_SECTION}.init_pos_emb_width"),
    fields.Field("vision_merged", f"{_SECTION}.merge_kernel_size", _is_pair, "two integers from 1 to 64"),
    fields.whole("vision_out", key=f"{_SECTION}.text_hidden_size", default=lambda facts: facts["hidden_size"]),
)

_SIZES: Mapping[str, Callable[[Facts], int]] = {
    "three": lambda f: 3,
    "vision": lambda f: f["vision_hidden_size"],
    "vision_mlp": lambda f: f["vision_intermediate_size"],
    "vision_merged": lambda f: f["vision_hidden_size"] * f["vision_merged"][0] * f["vision_merged"][1],
    "vision_out": lambda f: f["vision_out"],
    "vision_height": lambda f: f["vision_height"],
    "vision_width": lambda f: f["vision_width"],
    "patch": lambda f: f["vision_patch_size"],
}


def _derive(facts: Facts) -> Facts:
    fields.only(facts, "num_mtp_layers", 0)
    for name in _TWICE:
        fields.only(facts, f"vision_bare_{name}", facts[f"vision_{name}"])
    return deepseek_v3.derive(facts)


def _small(facts: Facts) -> Facts:
    """The tower of a small model, its widths narrow already."""
    tower = {**facts, "vision_num_attention_heads": 2}
    bare = {f"vision_bare_{name}": tower[f"vision_{name}"] for name in _TWICE}
    return {**bare, "vision_num_attention_heads": 2, "vision_out": facts["hidden_size"]}


# --- the tower ---------------------------------------------------------------------------------------


_PATCHES = Row("proj.weight", ("vision", "three", "patch", "patch"), None, "conv", protected=True)
_POSITIONS = Row("pos_emb.weight", ("vision_height", "vision_width", "vision"), None, "positions", protected=True)
_LAYER = (
    *rows.tower_norm("norm0"),
    *rows.tower_norm("norm1"),
    *rows.tower_linear("wqkv", "3*vision", "vision", "qkv"),
    *rows.tower_linear("wo", "vision", "vision", "o"),
    *rows.tower_linear("mlp.fc0", "vision_mlp", "vision", "up"),
    *rows.tower_linear("mlp.fc1", "vision", "vision_mlp", "down"),
)
_PROJECTOR = (
    *rows.tower_norm("pre_norm"),
    *rows.tower_linear("proj.0", "vision_merged", "vision_merged", "up"),
    *rows.tower_linear("proj.2", "vision_out", "vision_merged", "down"),
)

_TOWER = (
    rows.tower("vision_tower.patch_embed", _PATCHES, rows.bias(_PATCHES, ""), _POSITIONS),
    rows.tower("vision_tower.encoder.blocks.{l}", *_LAYER, over="vision_num_hidden_layers"),
    rows.tower("vision_tower.encoder", *rows.tower_norm("final_layernorm")),
    rows.tower("mm_projector", *_PROJECTOR),
)

FAMILY = Family(
    name="kimi_k25",
    architectures=("KimiK25ForConditionalGeneration",),
    model_types=("kimi_k25",),
    fields=(*deepseek_v3.FIELDS, *_VISION),
    blocks=rows.decoder(
        (*rows.layer_norms(), *rows.MULTI_HEAD_LATENT_ATTENTION, *rows.DENSE_MLP, *deepseek_v3.MOE),
        root="language_model.model",
        head="language_model",
        more=_TOWER,
    ),
    derive=_derive,
    sizes=_SIZES,
    small=_small,
    text_model_type="kimi_k2",
)
