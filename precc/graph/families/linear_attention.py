"""Rows of hybrid models: gated delta nets in most layers, gated attention in every n-th, MTP layers beside the decoder.

A gated delta net projects the input to queries, keys, values and an output gate (`qkvz`), and to a write strength and
a decay for each head (`ba`). Megatron multiplies all of them in one GEMM; a server in two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import gcd

from precc.graph.errors import FieldError
from precc.graph.families import fields, rows
from precc.graph.families.table import Block, Facts, Row
from precc.syntax.words import Role

FIELDS = (
    fields.whole("full_attention_interval", most=fields.MAX_LAYERS, default=4),
    fields.word_list("layer_types", ("linear_attention", "full_attention"), default=()),
    fields.whole("linear_num_key_heads"),
    fields.whole("linear_num_value_heads"),
    fields.whole("linear_key_head_dim"),
    fields.whole("linear_value_head_dim"),
    fields.whole("linear_conv_kernel_dim"),
)


_BLOCK = 128
"""The widest block of any format."""


def _keys(facts: Facts) -> int:
    return int(facts["linear_num_key_heads"] * facts["linear_key_head_dim"])


def _values(facts: Facts) -> int:
    return int(facts["linear_num_value_heads"] * facts["linear_value_head_dim"])


SIZES: Mapping[str, Callable[[Facts], int]] = {
    "linear_qkv": lambda f: 2 * _keys(f) + _values(f),
    "linear_qkvz": lambda f: 2 * _keys(f) + 2 * _values(f),
    "linear_value": _values,
    "linear_heads": lambda f: f["linear_num_value_heads"],
    "linear_value_head": lambda f: f["linear_value_head_dim"],
    "linear_kernel": lambda f: f["linear_conv_kernel_dim"],
}


def derive(facts: Facts) -> Facts:
    """Which layers attend to all positions, and which are gated delta nets; MTP layers attend."""
    heads, keys = facts["linear_num_value_heads"], facts["linear_num_key_heads"]
    if heads % keys:
        raise FieldError("linear_num_key_heads", keys, f"a divisor of linear_num_value_heads ({heads})")
    layers, every = range(facts["num_hidden_layers"]), facts["full_attention_interval"]
    kinds = tuple("linear_attention" if (layer + 1) % every else "full_attention" for layer in layers)
    if facts["layer_types"] not in ((), kinds):
        allowed = f"full_attention in every layer that full_attention_interval ({every}) says, for each of the layers"
        raise FieldError("layer_types", list(facts["layer_types"]), allowed)
    return {
        "layer_types": kinds,
        "full_layers": tuple(layer for layer in layers if kinds[layer] == "full_attention"),
        "linear_layers": tuple(layer for layer in layers if kinds[layer] == "linear_attention"),
        "use_qk_norm": True,
        "has_mtp": min(1, facts["num_mtp_layers"]),
    }


def small(facts: Facts) -> Facts:
    """Narrow heads, as many as leave the projections as divisible as they were."""
    values = gcd(facts["linear_num_value_heads"], _BLOCK)
    keys = gcd(facts["linear_num_key_heads"], values)
    return {
        "linear_num_value_heads": values,
        "linear_num_key_heads": keys,
        "linear_value_head_dim": gcd(_values(facts), _BLOCK) // values or 1,
        "linear_key_head_dim": gcd(_keys(facts), _BLOCK) // keys or 1,
    }


# --- attention ---------------------------------------------------------------------------------------


def gated_attention(layers: str = "") -> tuple[Row, ...]:
    """Grouped-query attention whose `q_proj` gives each head's query and output gate, one after the other."""
    return tuple(
        replace(row, shape=("2*query", *row.shape[1:]) if ".q_proj." in row.name else row.shape, layers=layers)
        for row in rows.GROUPED_QUERY_ATTENTION
    )


def _into(name: str, size: str, part: str, sglang: str = "") -> Row:
    return Row(
        f"linear_attn.{name}.weight",
        (size, "hidden"),
        Role.LINEAR_ATTENTION,
        part,
        contracted=(1,),
        parallel="column",
        megatron="linear_attn.in_proj",
        sglang=sglang,
        scale_group="linear_attn.in_proj",
        layers="linear_layers",
    )


JOINED = (_into("in_proj_qkvz", "linear_qkvz", "qkvz"), _into("in_proj_ba", "2*linear_heads", "ba"))
"""The input projections as a server multiplies them; rows go by key head: its q, k, v and gates together."""

APART = (
    _into("in_proj_qkv", "linear_qkv", "qkv", "linear_attn.in_proj_qkvz"),
    _into("in_proj_z", "linear_value", "z", "linear_attn.in_proj_qkvz"),
    _into("in_proj_b", "linear_heads", "b", "linear_attn.in_proj_ba"),
    _into("in_proj_a", "linear_heads", "a", "linear_attn.in_proj_ba"),
)
"""The same in four tensors."""


def beside(name: str, shape: tuple[str, ...], part: str, *, dtype: str = "", layers: str = "linear_layers") -> Row:
    """A parameter of linear attention, of whatever kind, that is no GEMM operand: with the module's name in front."""
    return Row(
        name,
        shape,
        None,
        part,
        frozenset({Role.LINEAR_ATTENTION}),
        parallel="column",
        protected=True,
        dtype=dtype,
        layers=layers,
    )


def gated_delta_net(projections: tuple[Row, ...], dtype: str = "") -> tuple[Row, ...]:
    """One layer's gated delta net; `dtype` is that of its decay and its norm, where it is not the model's."""
    out = replace(_into("out_proj", "hidden", "out"), shape=("hidden", "linear_value"), parallel="row")
    norm = rows.norm("linear_attn.norm", "linear_value_head", dtype=dtype, within=frozenset({Role.LINEAR_ATTENTION}))
    return (
        *projections,
        replace(out, megatron="", scale_group=""),
        beside("linear_attn.conv1d.weight", ("linear_qkv", "one", "linear_kernel"), "conv"),
        beside("linear_attn.A_log", ("linear_heads",), "decay", dtype=dtype),
        beside("linear_attn.dt_bias", ("linear_heads",), "bias"),
        replace(norm, layers="linear_layers"),
    )


# --- the shared expert, multi-token prediction -------------------------------------------------------

SHARED_EXPERT = (
    *rows.gated_mlp("mlp.shared_expert", "shared", Role.SHARED_EXPERTS, layers="moe_layers"),
    Row(
        "mlp.shared_expert_gate.weight",
        ("one", "hidden"),
        None,
        "expert_gate",
        frozenset({Role.SHARED_EXPERTS}),
        contracted=(1,),
        protected=True,
        layers="moe_layers",
    ),
)
"""The one shared expert of the Qwen families, and the gate that weighs it."""


def ahead(mlp: tuple[Row, ...]) -> tuple[Block, ...]:
    """The MTP layers below `mtp`, which attend; what stands before and behind them is there once."""
    around = (
        Row("fc.weight", ("hidden", "2*hidden"), None, "fc", contracted=(1,), protected=True),
        rows.norm("pre_fc_norm_embedding", "hidden"),
        rows.norm("pre_fc_norm_hidden", "hidden"),
        rows.norm("norm", "hidden"),
    )
    layer = (*rows.layer_norms(), *gated_attention(), *mlp)
    return (
        Block("mtp", around, over="has_mtp", outer=Role.MTP, outer_depth=1),
        Block("mtp.layers.{l}", layer, over="num_mtp_layers", outer=Role.MTP, outer_depth=1),
    )
