"""DeepSeek-V4, under the names of its release: attention over compressed keys, hyper-connections, hashed routing.

Names and shapes are those that transformers 5 and SGLang 0.5.23 load. `compress_ratios` says what each layer attends
to: a window (0), a sparse choice of compressed keys by an indexer (4), or all of them, compressed further (128). The
first `num_hash_layers` route a token by its number; their table of integers (`tid2eid`) is no weight, and not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from precc.graph.errors import FieldError
from precc.graph.families import fields, rows
from precc.graph.families.table import Block, Facts, Family, Row
from precc.graph.model import Parallel
from precc.syntax.words import Role

_WINDOW, _SPARSE, _DENSE = 0, 4, 128
_WITHIN = frozenset({Role.ATTENTION})
_INDEXER = frozenset({Role.ATTENTION, Role.INDEXER})


def _are_ratios(value: object) -> bool:
    return isinstance(value, list) and all(ratio in (_WINDOW, _SPARSE, _DENSE) for ratio in value)


def _derive(facts: Facts) -> Facts:
    layers, ratios = facts["num_hidden_layers"], facts["compress_ratios"]
    every = layers + facts["num_mtp_layers"]
    if len(ratios) != every:
        raise FieldError("compress_ratios", list(ratios), f"a list of {every} entries, one a layer, MTP layers last")
    if any(ratios[layers:]):
        raise FieldError("compress_ratios", list(ratios), "0 for MTP layers")
    if facts["num_hash_layers"] > layers:
        raise FieldError("num_hash_layers", facts["num_hash_layers"], f"at most num_hidden_layers ({layers})")
    heads, groups = facts["num_attention_heads"], facts["o_groups"]
    if heads % groups:
        raise FieldError("o_groups", groups, f"a divisor of num_attention_heads ({heads})")
    fields.only(facts, "num_key_value_heads", 1)
    return {
        **fields.no_bias(facts),
        **fields.sparse_layers(facts, lambda layer: True),
        "shared_expert_intermediate_size": facts["n_shared_experts"] * facts["moe_intermediate_size"],
        "sparse_layers": tuple(layer for layer in range(layers) if ratios[layer] == _SPARSE),
        "compressed_layers": tuple(layer for layer in range(layers) if ratios[layer] == _DENSE),
        "scored_layers": tuple(range(facts["num_hash_layers"], layers)),
    }


_SIZES: Mapping[str, Callable[[Facts], int]] = {
    "one": lambda f: 1,
    "heads": lambda f: f["num_attention_heads"],
    "three": lambda f: 3,
    "ratio_4": lambda f: _SPARSE,
    "ratio_128": lambda f: _DENSE,
    "streams": lambda f: f["hc_mult"],
    "mixes": lambda f: (2 + f["hc_mult"]) * f["hc_mult"],
    "all_streams": lambda f: f["hc_mult"] * f["hidden_size"],
    "out_rank": lambda f: f["o_groups"] * f["o_lora_rank"],
    "out_group": lambda f: f["num_attention_heads"] * f["head_dim"] // f["o_groups"],
}


# --- attention ---------------------------------------------------------------------------------------


def _projection(
    name: str, shape: tuple[str, str], part: str, *, parallel: Parallel | None = None, sglang: str = ""
) -> Row:
    return Row(f"attn.{name}.weight", shape, Role.ATTENTION, part, contracted=(1,), parallel=parallel, sglang=sglang)


def _compressor(prefix: str, size: str, ratio: str, layers: str, within: frozenset[Role]) -> tuple[Row, ...]:
    """What sums several keys up; it stays high in every release."""

    def row(name: str, shape: tuple[str, ...], part: str, contracted: tuple[int, ...] = ()) -> Row:
        return Row(f"{prefix}.compressor.{name}", shape, None, part, within, contracted, protected=True, layers=layers)

    width = size.rpartition("*")[2]
    norm = rows.norm(f"{prefix}.compressor.norm", width, within=within)
    return (
        row("wkv.weight", (size, "hidden"), "wkv", (1,)),
        row("wgate.weight", (size, "hidden"), "wgate", (1,)),
        row("ape", (ratio, size), "positions"),
        replace(norm, layers=layers),
    )


_ATTENTION = (
    _projection("wq_a", ("q_rank", "hidden"), "q_a", sglang="attn.wqkv_a"),
    rows.norm("attn.q_norm", "q_rank", within=_WITHIN),
    _projection("wq_b", ("query", "q_rank"), "q_b", parallel="column"),
    _projection("wkv", ("head", "hidden"), "kv_a", sglang="attn.wqkv_a"),
    rows.norm("attn.kv_norm", "head", within=_WITHIN),
    _projection("wo_a", ("out_rank", "out_group"), "o_a", parallel="column"),
    _projection("wo_b", ("hidden", "out_rank"), "o", parallel="row"),
    Row("attn.attn_sink", ("heads",), None, "sinks", _WITHIN, protected=True, dtype="fp32"),
)


def _indexer(name: str, shape: tuple[str, str], protected: bool = False) -> Row:
    found = Row(f"attn.indexer.{name}.weight", shape, Role.INDEXER, name, _WITHIN, (1,), layers="sparse_layers")
    return replace(found, protected=protected)


_COMPRESSED = (
    *_compressor("attn", "2*head", "ratio_4", "sparse_layers", _WITHIN),
    *_compressor("attn", "head", "ratio_128", "compressed_layers", _WITHIN),
    _indexer("wq_b", ("index_query", "q_rank")),
    _indexer("weights_proj", ("index_heads", "hidden"), protected=True),
    *_compressor("attn.indexer", "2*index_head", "ratio_4", "sparse_layers", _INDEXER),
)

# --- the rest of a layer -----------------------------------------------------------------------------


def _mlp(prefix: str, width: str, role: Role) -> tuple[Row, ...]:
    """`w1`, `w3` and `w2`, as the release calls gate, up and down."""
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    return tuple(
        replace(row, name=row.name.replace(long, short))
        for row in rows.gated_mlp(prefix, width, role)
        for long, short in names.items()
        if f".{long}." in row.name
    )


def _mixing(name: str) -> tuple[Row, ...]:
    """A hyper-connection: how a sub-layer reads the residual streams and writes to them."""
    shapes = {"fn": ("mixes", "all_streams"), "base": ("mixes",), "scale": ("three",)}
    return tuple(
        Row(f"hc_{name}_{word}", shape, None, "streams", protected=True, dtype="fp32") for word, shape in shapes.items()
    )


def _head_mixing() -> tuple[Row, ...]:
    shapes = {"fn": ("streams", "all_streams"), "base": ("streams",), "scale": ("one",)}
    return tuple(
        Row(f"hc_head_{word}", shape, None, "streams", protected=True, dtype="fp32") for word, shape in shapes.items()
    )


_CORRECTION = Row("ffn.gate.bias", ("experts",), Role.ROUTER, "bias", protected=True, dtype="fp32")
_BESIDE = (
    rows.norm("attn_norm", "hidden"),
    rows.norm("ffn_norm", "hidden"),
    *_mixing("attn"),
    *_mixing("ffn"),
    replace(rows.router("ffn.gate"), layers=""),
    *(replace(row, layers="") for row in rows.routed_experts("ffn.experts", ("w1", "w3", "w2"))),
    *_mlp("ffn.shared_experts", "shared", Role.SHARED_EXPERTS),
)
_LAYER = (*_ATTENTION, *_COMPRESSED, *_BESIDE, replace(_CORRECTION, layers="scored_layers"))

_AHEAD = (
    rows.norm("enorm", "hidden"),
    rows.norm("hnorm", "hidden"),
    *(Row(f"{name}.weight", ("hidden", "hidden"), None, "fc", contracted=(1,)) for name in ("e_proj", "h_proj")),
    *_ATTENTION,
    *_BESIDE,
    _CORRECTION,
    rows.norm("norm", "hidden"),
    *_head_mixing(),
)

FAMILY = Family(
    name="deepseek_v4",
    architectures=("DeepseekV4ForCausalLM",),
    model_types=("deepseek_v4",),
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        fields.whole("q_lora_rank"),
        fields.whole("o_groups"),
        fields.whole("o_lora_rank"),
        *fields.moe("n_routed_experts"),
        fields.SHARED_EXPERTS,
        fields.MTP_LAYERS,
        fields.whole("index_n_heads"),
        fields.whole("index_head_dim"),
        fields.whole("index_topk"),
        fields.whole("hc_mult", most=64),
        fields.whole("num_hash_layers", least=0, most=fields.MAX_LAYERS),
        fields.Field("expert_dtype", "expert_dtype", lambda value: isinstance(value, str), "a text", None),
        fields.Field("compress_ratios", "compress_ratios", _are_ratios, "a list of 0, 4 and 128, one a layer"),
    ),
    blocks=(
        Block("", (replace(rows.EMBEDDING, name="embed.weight"),)),
        Block("layers.{l}", _LAYER, over="num_hidden_layers"),
        Block("mtp.{l}", _AHEAD, over="num_mtp_layers", outer=Role.MTP, outer_depth=2),
        Block("", (*_head_mixing(), rows.norm("norm", "hidden"))),
        Block("", (replace(rows.LM_HEAD, name="head.weight", tied_to="embed"),)),
    ),
    derive=_derive,
    sizes=_SIZES,
    small=lambda facts: {"o_groups": 1},
)
