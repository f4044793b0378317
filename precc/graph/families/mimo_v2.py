"""MiMo-V2-Flash: full and sliding attention with heads of their own, values narrower than keys, sinks where it slides.

`config.json` says nothing of the three MTP layers that are released with it, below `model.mtp`: they slide, and have a
dense MLP.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from precc.graph.errors import FieldError
from precc.graph.families import fields, rows
from precc.graph.families.table import Block, Facts, Family, Row
from precc.syntax.words import Role

_SLIDING = ("swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim")

_SIZES: Mapping[str, Callable[[Facts], int]] = {
    "heads": lambda f: f["num_attention_heads"],
    "value": lambda f: f["num_key_value_heads"] * f["v_head_dim"],
    "attended": lambda f: f["num_attention_heads"] * f["v_head_dim"],
    "swa_heads": lambda f: f["swa_num_attention_heads"],
    "swa_query": lambda f: f["swa_num_attention_heads"] * f["swa_head_dim"],
    "swa_key_value": lambda f: f["swa_num_key_value_heads"] * f["swa_head_dim"],
    "swa_value": lambda f: f["swa_num_key_value_heads"] * f["swa_v_head_dim"],
    "swa_attended": lambda f: f["swa_num_attention_heads"] * f["swa_v_head_dim"],
}


def _derive(facts: Facts) -> Facts:
    for fact in ("hybrid_layer_pattern", "routed_layer_pattern"):
        fields.one_a_layer(facts, fact)
    heads, groups = facts["swa_num_attention_heads"], facts["swa_num_key_value_heads"]
    if heads % groups:
        raise FieldError("swa_num_key_value_heads", groups, f"a divisor of swa_num_attention_heads ({heads})")
    slides = tuple(enumerate(facts["hybrid_layer_pattern"]))
    return {
        **fields.grouped_heads(facts),
        **fields.no_bias(facts),
        **fields.only(facts, "n_shared_experts", 0),
        **fields.sparse_layers(facts, lambda layer: bool(facts["routed_layer_pattern"][layer])),
        "correction_bias": facts["topk_method"] == "noaux_tc",
        "sliding_layers": tuple(layer for layer, slid in slides if slid),
        "full_layers": tuple(layer for layer, slid in slides if not slid),
    }


def _attention(prefix: str, layers: str, sinks: str) -> tuple[Row, ...]:
    sizes = {
        "q": (f"{prefix}query", "hidden"),
        "k": (f"{prefix}key_value", "hidden"),
        "v": (f"{prefix}value", "hidden"),
        "o": ("hidden", f"{prefix}attended"),
    }
    weights = (row for row in rows.GROUPED_QUERY_ATTENTION if row.part in sizes)
    return (
        *(replace(row, shape=sizes[row.part], layers=layers) for row in weights),
        Row(
            "self_attn.attention_sink_bias",
            (f"{prefix}heads",),
            None,
            "sinks",
            frozenset({Role.ATTENTION}),
            parallel="column",
            protected=True,
            layers=layers,
            when=sinks,
        ),
    )


_SLIDES = _attention("swa_", "sliding_layers", "add_swa_attention_sink_bias")
_AHEAD = (
    rows.norm("enorm", "hidden"),
    rows.norm("hnorm", "hidden"),
    Row("eh_proj.weight", ("hidden", "2*hidden"), None, "fc", contracted=(1,), protected=True),
    rows.norm("input_layernorm", "hidden"),
    *_SLIDES,
    rows.norm("pre_mlp_layernorm", "hidden"),
    *rows.gated_mlp(),
    rows.norm("final_layernorm", "hidden"),
)

FAMILY = Family(
    name="mimo_v2",
    architectures=("MiMoV2FlashForCausalLM",),
    model_types=("mimo_v2_flash",),
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        fields.whole("v_head_dim"),
        *(fields.whole(fact) for fact in _SLIDING),
        fields.pattern("hybrid_layer_pattern"),
        fields.pattern("routed_layer_pattern", key="moe_layer_freq"),
        fields.flag("add_swa_attention_sink_bias"),
        fields.flag("add_full_attention_sink_bias"),
        fields.DENSE_MLP,
        *fields.moe("n_routed_experts"),
        fields.SHARED_EXPERTS,
        fields.word("topk_method", ("noaux_tc", "greedy"), "noaux_tc"),
        fields.whole("num_mtp_layers", key="num_nextn_predict_layers", least=0, most=16, default=3),
    ),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *_attention("", "full_layers", "add_full_attention_sink_bias"),
            *_SLIDES,
            *rows.DENSE_MLP,
            rows.router(),
            rows.CORRECTION_BIAS,
            *rows.routed_experts(),
        ),
        more=(Block("model.mtp.layers.{l}", _AHEAD, over="num_mtp_layers", outer=Role.MTP, outer_depth=4),),
    ),
    derive=_derive,
    sizes=_SIZES,
)
