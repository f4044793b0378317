"""Rows of the vision tower of Qwen3-VL and Qwen3.5: patches, blocks with one `qkv`, mergers into the decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from precc.graph.errors import FieldError
from precc.graph.families import fields, rows
from precc.graph.families.table import Block, Facts, Row

ROOT = "model.visual"

FIELDS = (
    *(
        fields.whole(f"vision_{name}", key=f"vision_config.{name}")
        for name in ("hidden_size", "intermediate_size", "out_hidden_size", "num_heads", "num_position_embeddings")
    ),
    *(
        fields.whole(f"vision_{name}", key=f"vision_config.{name}", most=fields.MAX_LAYERS)
        for name in ("depth", "in_channels", "patch_size", "spatial_merge_size", "temporal_patch_size")
    ),
    fields.layer_list("vision_deepstack", key="vision_config.deepstack_visual_indexes"),
)

SIZES: Mapping[str, Callable[[Facts], int]] = {
    "vision": lambda f: f["vision_hidden_size"],
    "vision_mlp": lambda f: f["vision_intermediate_size"],
    "vision_merged": lambda f: f["vision_hidden_size"] * f["vision_spatial_merge_size"] ** 2,
    "vision_out": lambda f: f["vision_out_hidden_size"],
    "vision_positions": lambda f: f["vision_num_position_embeddings"],
    "vision_channels": lambda f: f["vision_in_channels"],
    "patch": lambda f: f["vision_patch_size"],
    "patch_frames": lambda f: f["vision_temporal_patch_size"],
}


def derive(facts: Facts) -> Facts:
    """Which blocks feed the decoder's first layers; the tower's last width is the decoder's."""
    if facts["vision_out_hidden_size"] != facts["hidden_size"]:
        allowed = f"the decoder's hidden_size ({facts['hidden_size']})"
        raise FieldError("vision_config.out_hidden_size", facts["vision_out_hidden_size"], allowed)
    depth, taken = facts["vision_depth"], facts["vision_deepstack"]
    if any(block >= depth for block in taken):
        allowed = f"numbers of blocks, from 0 to {depth - 1}"
        raise FieldError("vision_config.deepstack_visual_indexes", list(taken), allowed)
    return {"vision_deepstack_mergers": len(taken)}


def small(facts: Facts) -> Facts:
    """The tower of a small model, its widths narrow already."""
    return {"vision_out_hidden_size": facts["hidden_size"], "vision_num_heads": 2}


def _merger(norm: str) -> tuple[Row, ...]:
    return (
        *rows.tower_norm("norm", norm),
        *rows.tower_linear("linear_fc1", "vision_merged", "vision_merged", "up"),
        *rows.tower_linear("linear_fc2", "vision_out", "vision_merged", "down"),
    )


_PATCHES = Row(
    "patch_embed.proj.weight",
    ("vision", "vision_channels", "patch_frames", "patch", "patch"),
    None,
    "conv",
    protected=True,
)
_POSITIONS = Row("pos_embed.weight", ("vision_positions", "vision"), None, "positions", protected=True)
_BLOCK = (
    *rows.tower_norm("norm1", "vision"),
    *rows.tower_norm("norm2", "vision"),
    *rows.tower_linear("attn.qkv", "3*vision", "vision", "qkv"),
    *rows.tower_linear("attn.proj", "vision", "vision", "o"),
    *rows.tower_linear("mlp.linear_fc1", "vision_mlp", "vision", "up"),
    *rows.tower_linear("mlp.linear_fc2", "vision", "vision_mlp", "down"),
)


def _block(below: str, table: tuple[Row, ...], over: str = "") -> Block:
    prefix = f"{ROOT}.{below}" if below else ROOT
    return rows.tower(prefix, *table, over=over, depth=2)


TOWER = (
    _block("", (_PATCHES, rows.bias(_PATCHES, ""), _POSITIONS)),
    _block("blocks.{l}", _BLOCK, over="vision_depth"),
    _block("merger", _merger("vision")),
    _block("deepstack_merger_list.{l}", _merger("vision_merged"), over="vision_deepstack_mergers"),
)
