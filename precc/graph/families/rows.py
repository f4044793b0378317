"""Groups of rows that several families share."""

from __future__ import annotations

from dataclasses import replace

from precc.graph.families.table import Block, Row
from precc.graph.model import EXPERT
from precc.syntax.words import Role

_ATTENTION = frozenset({Role.ATTENTION})
_LINEAR = (1,)
_ABSORBED = (0, 1)
"""MLA absorption multiplies by `kv_b_proj` from both sides: queries over rows, values over columns."""


def norm(name: str, size: str, *, dtype: str = "", within: frozenset[Role] = frozenset(), when: str = "") -> Row:
    """The weight of a norm."""
    return Row(f"{name}.weight", (size,), Role.NORM, "norm", within, protected=True, dtype=dtype, when=when)


# --- around the layers -------------------------------------------------------------------------------

EMBEDDING = Row("embed_tokens.weight", ("vocab", "hidden"), Role.EMBEDDING, "embed", parallel="column", protected=True)
LM_HEAD = Row(
    "lm_head.weight",
    ("vocab", "hidden"),
    Role.LM_HEAD,
    "head",
    contracted=_LINEAR,
    parallel="column",
    protected=True,
    tied_to="model.embed_tokens",
    when="lm_head_stored",
)


def layer_norms(dtype: str = "") -> tuple[Row, ...]:
    """The norms before attention and before the MLP."""
    return (
        norm("input_layernorm", "hidden", dtype=dtype),
        norm("post_attention_layernorm", "hidden", dtype=dtype),
    )


def decoder(
    rows: tuple[Row, ...],
    mtp: tuple[Row, ...] = (),
    *,
    root: str = "model",
    head: str = "",
    more: tuple[Block, ...] = (),
) -> tuple[Block, ...]:
    """The blocks of a causal LM whose layers have `rows`, and whose MTP layers, numbered on, have `mtp`.

    `root` is what the decoder stands below and `head` what the LM head does; `more` are blocks that stand beside them:
    towers, MTP layers of another kind.
    """
    ahead = Block(
        f"{root}.layers.{{l}}",
        mtp,
        over="num_mtp_layers",
        after="num_hidden_layers",
        outer=Role.MTP,
        outer_depth=len(root.split(".")) + 2,
    )
    return (
        Block(root, (EMBEDDING,)),
        Block(f"{root}.layers.{{l}}", rows, over="num_hidden_layers"),
        *((ahead,) if mtp else ()),
        Block(root, (norm("norm", "hidden"),)),
        Block(head, (replace(LM_HEAD, tied_to=f"{root}.embed_tokens"),)),
        *more,
    )


# --- attention ---------------------------------------------------------------------------------------


def _qkv(part: str, size: str) -> Row:
    return Row(
        f"self_attn.{part}_proj.weight",
        (size, "hidden"),
        Role.ATTENTION,
        part,
        contracted=_LINEAR,
        parallel="column",
        megatron="self_attn.qkv",
        sglang="self_attn.qkv",
        scale_group="self_attn.qkv",
    )


def _output(width: str) -> Row:
    return Row("self_attn.o_proj.weight", ("hidden", width), Role.ATTENTION, "o", contracted=_LINEAR, parallel="row")


def bias(row: Row, when: str) -> Row:
    """The bias of a linear layer; one that adds to a sum over ranks is on none of them in particular."""
    return Row(
        row.name.removesuffix("weight") + "bias",
        row.shape[:1],
        None,
        "bias",
        frozenset({row.role}) if row.role else frozenset(),
        parallel="column" if row.parallel == "column" else None,
        protected=True,
        layers=row.layers,
        when=when,
    )


_QKV = (_qkv("q", "query"), _qkv("k", "key_value"), _qkv("v", "key_value"))
_OUTPUT = _output("query")

GROUPED_QUERY_ATTENTION = (
    *_QKV,
    _OUTPUT,
    *(bias(row, "attention_bias") for row in _QKV),
    bias(_OUTPUT, "attention_output_bias"),
    norm("self_attn.q_norm", "head", within=_ATTENTION, when="use_qk_norm"),
    norm("self_attn.k_norm", "head", within=_ATTENTION, when="use_qk_norm"),
)


def _mla(name: str, shape: tuple[str, str], part: str, column: bool = False) -> Row:
    return Row(
        f"self_attn.{name}.weight",
        shape,
        Role.ATTENTION,
        part,
        contracted=_LINEAR,
        parallel="column" if column else None,
    )


_Q = replace(_mla("q_proj", ("mla_query", "hidden"), "q", column=True), unless="q_lora_rank")
_Q_A = replace(_mla("q_a_proj", ("q_rank", "hidden"), "q_a"), sglang="self_attn.qkv_a", when="q_lora_rank")
_Q_B = replace(_mla("q_b_proj", ("mla_query", "q_rank"), "q_b", column=True), when="q_lora_rank")
_KV_A = _mla("kv_a_proj_with_mqa", ("kv_rank_and_rope", "hidden"), "kv_a")
_KV_B = replace(
    _mla("kv_b_proj", ("mla_key_value", "kv_rank"), "kv_b", column=True),
    role=Role.MLA,
    within=_ATTENTION,
    contracted=_ABSORBED,
)

MULTI_HEAD_LATENT_ATTENTION = (
    _Q,
    _Q_A,
    norm("self_attn.q_a_layernorm", "q_rank", within=_ATTENTION, when="q_lora_rank"),
    _Q_B,
    replace(_KV_A, sglang="self_attn.qkv_a", when="q_lora_rank"),
    replace(_KV_A, unless="q_lora_rank"),
    norm("self_attn.kv_a_layernorm", "kv_rank", within=_ATTENTION),
    _KV_B,
    _output("mla_value"),
)


def _indexer(name: str, shape: tuple[str, str], protected: bool = False) -> Row:
    return Row(
        f"self_attn.indexer.{name}.weight",
        shape,
        Role.INDEXER,
        name,
        _ATTENTION,
        contracted=_LINEAR,
        protected=protected,
    )


_INDEXER_NORM = norm("self_attn.indexer.k_norm", "index_head", dtype="fp32", within=_ATTENTION | {Role.INDEXER})

INDEXER = (
    _indexer("wq_b", ("index_query", "q_rank")),
    _indexer("wk", ("index_head", "hidden")),
    _indexer("weights_proj", ("index_heads", "hidden"), protected=True),
    _INDEXER_NORM,
    replace(_INDEXER_NORM, name="self_attn.indexer.k_norm.bias", part="bias"),
)
"""The lightning indexer of sparse attention; its per-head weights stay high in every engine."""


# --- MLPs and experts --------------------------------------------------------------------------------


def gated_mlp(
    prefix: str = "mlp",
    width: str = "dense",
    role: Role = Role.DENSE_MLP,
    *,
    layers: str = "",
    when: str = "",
) -> tuple[Row, ...]:
    """Gate, up and down of one MLP, gate and up in one GEMM."""

    def into(part: str) -> Row:
        return Row(
            f"{prefix}.{part}_proj.weight",
            (width, "hidden"),
            role,
            part,
            contracted=_LINEAR,
            parallel="column",
            megatron=f"{prefix}.gate_up",
            sglang=f"{prefix}.gate_up",
            scale_group=f"{prefix}.gate_up",
            layers=layers,
            when=when,
        )

    down = replace(into("down"), shape=("hidden", width), parallel="row", megatron="", sglang="", scale_group="")
    return into("gate"), into("up"), down


def router(name: str = "mlp.gate") -> Row:
    """The projection that scores experts."""
    return Row(
        f"{name}.weight",
        ("experts", "hidden"),
        Role.ROUTER,
        "router",
        contracted=_LINEAR,
        protected=True,
        layers="moe_layers",
    )


CORRECTION_BIAS = Row(
    "mlp.gate.e_score_correction_bias",
    ("experts",),
    Role.ROUTER,
    "bias",
    protected=True,
    dtype="fp32",
    layers="moe_layers",
    when="correction_bias",
)


def routed_experts(
    prefix: str = "mlp.experts", names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
) -> tuple[Row, ...]:
    """Gate, up and down of every expert.

    Megatron multiplies all experts of a layer in one grouped GEMM each for fc1 and fc2; SGLang's fused expert
    layer has one method for both.
    """
    gate, up, down = names

    def into(name: str, part: str) -> Row:
        return Row(
            f"{prefix}.{EXPERT}.{name}.weight",
            ("expert", "hidden"),
            Role.ROUTED_EXPERTS,
            part,
            contracted=_LINEAR,
            parallel="column",
            megatron=f"{prefix}.fc1",
            sglang=prefix,
            scale_group=f"{prefix}.{EXPERT}.gate_up",
            layers="moe_layers",
        )

    out = replace(
        into(down, "down"),
        shape=("hidden", "expert"),
        parallel="row",
        megatron=f"{prefix}.fc2",
        scale_group="",
    )
    return into(gate, "gate"), into(up, "up"), out


def stacked_experts(
    prefix: str = "mlp.experts",
    names: tuple[str, str] = ("gate_up_proj", "down_proj"),
    *,
    transposed: bool = False,
    interleaved: bool = False,
) -> tuple[Row, ...]:
    """Gate with up, and down, of all experts of a layer in one bare parameter each.

    `[experts, output, input]` as each expert multiplies, or, `transposed`, `[experts, input, output]`. Gate and up
    stand one after the other along the output axis, or, `interleaved`, in turn.
    """

    def stack(name: str, part: str, output: str, input: str) -> Row:
        axes = (input, output) if transposed else (output, input)
        return Row(
            f"{prefix}.{name}",
            ("experts", *axes),
            Role.ROUTED_EXPERTS,
            part,
            contracted=(1 if transposed else 2,),
            parallel="row" if part == "down" else "column",
            megatron=f"{prefix}.{'fc2' if part == 'down' else 'fc1'}",
            sglang=prefix,
            layers="moe_layers",
            interleaved=interleaved and part == "gate_up",
        )

    into, out = names
    return stack(into, "gate_up", "2*expert", "hidden"), stack(out, "down", "hidden", "expert")


def stacked_bias(row: Row) -> Row:
    """The biases of stacked experts, `[experts, output]`, which stand beside the weight as `NAME_bias`."""
    _, first, second = row.shape
    return Row(
        f"{row.name}_bias",
        ("experts", second if row.contracted == (1,) else first),
        None,
        "bias",
        frozenset({Role.ROUTED_EXPERTS}),
        parallel="column" if row.parallel == "column" else None,
        protected=True,
        layers=row.layers,
        interleaved=row.interleaved,
    )


DENSE_MLP = gated_mlp(layers="dense_layers")
SHARED_EXPERTS = gated_mlp(
    "mlp.shared_experts", "shared", Role.SHARED_EXPERTS, layers="moe_layers", when="n_shared_experts"
)


# --- towers ------------------------------------------------------------------------------------------


def tower_linear(name: str, output: str, input: str, part: str) -> tuple[Row, ...]:
    """A linear layer with a bias, as a tower has it: none of the decoder's roles."""
    weight = Row(f"{name}.weight", (output, input), None, part, contracted=_LINEAR)
    return weight, bias(weight, "")


def tower_norm(name: str, size: str = "vision") -> tuple[Row, ...]:
    """A layer norm with a bias."""
    weight = norm(name, size)
    return weight, replace(weight, name=f"{name}.bias", part="bias")


def tower(prefix: str, *table: Row, over: str = "", depth: int = 1) -> Block:
    """A block of a vision tower, whose root is the first `depth` components."""
    return Block(prefix, table, over=over, outer=Role.VISION, outer_depth=depth)


# --- multi-token prediction --------------------------------------------------------------------------

MTP = (
    norm("enorm", "hidden"),
    norm("hnorm", "hidden"),
    Row("eh_proj.weight", ("hidden", "2*hidden"), None, "fc", contracted=_LINEAR, protected=True),
    EMBEDDING,
    norm("shared_head.norm", "hidden"),
    replace(LM_HEAD, name="shared_head.head.weight", tied_to="", when=""),
)
"""What an MTP layer has beside a decoder layer's tensors; embedding and head are copies of the model's."""
