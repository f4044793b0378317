"""Nemotron-H: each layer is one mixer behind one norm: Mamba-2, attention, routed experts or an MLP.

A config lists the kind of each layer, or spells the list as a pattern of letters. MLPs and experts have no gate.
Routed experts may multiply in a narrower space (`moe_latent_size`), with a projection into it and one out of it.
The MTP layer is two blocks below `mtp`: attention, then experts.

A Mamba-2 mixer projects the input to an output gate, values, the two state matrices and a time step for each head, in
one GEMM. It is `linear_attention`: a recurrence in place of a cache of keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from precc.graph.errors import FieldError
from precc.graph.families import fields, linear_attention, rows
from precc.graph.families.table import Block, Facts, Family, Row
from precc.syntax.words import Role

KINDS: Mapping[str, str] = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
"""The letters of a pattern."""

_AHEAD = ("attention", "moe")
"""The blocks of an MTP layer, the only ones that were published."""

_BLOCK = 128
"""The widest block of any format."""


@dataclass(frozen=True, slots=True)
class KindList(fields.Field):
    """A list of kinds of layers, which the key `pattern` may spell in letters instead."""

    pattern: str = ""

    def read(self, raw: Mapping[str, object], facts: Mapping[str, Any]) -> Any:
        """The kinds, whichever key has them. Raises FieldError, also where both are there and differ."""
        letters = raw.get(self.pattern)
        if letters is None:
            return fields.Field.read(self, raw, facts)
        if not isinstance(letters, str) or len(letters) > fields.MAX_LAYERS or not set(letters) <= KINDS.keys():
            raise FieldError(self.pattern, letters, f"a text of the letters {' '.join(KINDS)}")
        kinds = tuple(KINDS[letter] for letter in letters)
        if raw.get(self.key) not in (None, list(kinds)):
            raise FieldError(self.key, raw[self.key], f"what {self.pattern} says")
        return kinds


def _kind_list(fact: str, pattern: str, **default: Any) -> KindList:
    plain = fields.word_list(fact, tuple(KINDS.values()), default=())
    return KindList(fact, fact, plain.valid, f"{plain.allowed}, or {pattern} in its place", pattern=pattern, **default)


def _inner(facts: Facts) -> int:
    return int(facts["mamba_num_heads"] * facts["mamba_head_dim"])


def _states(facts: Facts) -> int:
    return int(facts["mamba_n_groups"] * facts["ssm_state_size"])


SIZES: Mapping[str, Callable[[Facts], int]] = {
    "inner": _inner,
    "mamba_into": lambda f: 2 * _inner(f) + 2 * _states(f) + f["mamba_num_heads"],
    "mamba_conv": lambda f: _inner(f) + 2 * _states(f),
    "mamba_heads": lambda f: f["mamba_num_heads"],
    "mamba_kernel": lambda f: f["conv_kernel"],
    "latent": lambda f: f["moe_latent_size"],
    "moe_hidden": lambda f: f["moe_latent_size"] or f["hidden_size"],
}


def _derive(facts: Facts) -> Facts:
    fields.one_a_layer(facts, "layers_block_type")
    kinds = tuple(enumerate(facts["layers_block_type"]))
    if facts["num_mtp_layers"]:
        fields.only(facts, "mtp_layers_block_type", _AHEAD)
    heads, groups = facts["mamba_num_heads"], facts["mamba_n_groups"]
    if heads % groups:
        raise FieldError("n_groups", groups, f"a divisor of mamba_num_heads ({heads})")
    return {
        **fields.grouped_heads(facts),
        **fields.no_bias(facts),
        **fields.only(facts, "mlp_bias", False),
        **fields.only(facts, "use_bias", False),
        **fields.sparse_layers(facts, lambda layer: facts["layers_block_type"][layer] == "moe"),
        "dense_layers": tuple(layer for layer, kind in kinds if kind == "mlp"),
        "mamba_layers": tuple(layer for layer, kind in kinds if kind == "mamba"),
        "attention_layers": tuple(layer for layer, kind in kinds if kind == "attention"),
        "shared_expert_intermediate_size": facts["n_shared_experts"] * facts["moe_shared_expert_intermediate_size"],
    }


def _small(facts: Facts) -> Facts:
    """Narrow heads and states that leave the projections as divisible as they were."""
    heads, groups = gcd(facts["mamba_num_heads"], _BLOCK), facts["mamba_n_groups"]
    return {
        "mamba_num_heads": heads,
        "mamba_head_dim": gcd(_inner(facts), _BLOCK) // heads or 1,
        "ssm_state_size": gcd(_states(facts), _BLOCK) // groups or 1,
    }


# --- the mixers --------------------------------------------------------------------------------------


def _attention(row: Row) -> Row:
    def below(name: str) -> str:
        return name.replace("self_attn.", "mixer.")

    return replace(
        row,
        name=below(row.name),
        megatron=below(row.megatron),
        sglang=below(row.sglang),
        scale_group=below(row.scale_group),
        layers="attention_layers",
    )


ATTENTION = tuple(_attention(row) for row in rows.GROUPED_QUERY_ATTENTION if row.role is Role.ATTENTION)


def _mamba(name: str, shape: tuple[str, ...], part: str) -> Row:
    """A parameter of a Mamba-2 mixer that is no GEMM operand."""
    return linear_attention.beside(f"mixer.{name}", shape, part, layers="mamba_layers")


_IN = replace(
    _mamba("in_proj.weight", ("mamba_into", "hidden"), "in"),
    role=Role.LINEAR_ATTENTION,
    within=frozenset(),
    contracted=(1,),
    protected=False,
)

MAMBA = (
    _mamba("A_log", ("mamba_heads",), "decay"),
    _mamba("D", ("mamba_heads",), "skip"),
    replace(_mamba("conv1d.bias", ("mamba_conv",), "bias"), when="use_conv_bias"),
    _mamba("conv1d.weight", ("mamba_conv", "one", "mamba_kernel"), "conv"),
    _mamba("dt_bias", ("mamba_heads",), "bias"),
    _IN,
    replace(rows.norm("mixer.norm", "inner", within=frozenset({Role.LINEAR_ATTENTION})), layers="mamba_layers"),
    replace(_IN, name="mixer.out_proj.weight", shape=("hidden", "inner"), part="out", parallel="row"),
)


def _ungated(gated: tuple[Row, ...], outside: str = "hidden") -> tuple[Row, ...]:
    """Up and down of an MLP without its gate, from and to the size `outside`; up shares nothing with another weight."""
    _, up, down = gated
    fused = up.megatron if up.role is Role.ROUTED_EXPERTS else ""
    served = up.sglang if up.role is Role.ROUTED_EXPERTS else ""
    up = replace(up, shape=(up.shape[0], outside), megatron=fused, sglang=served, scale_group="")
    return up, replace(down, shape=(outside, down.shape[1]))


def _latent(name: str, shape: tuple[str, str], part: str) -> Row:
    return Row(f"mixer.{name}.weight", shape, None, part, contracted=(1,), layers="moe_layers", when="moe_latent_size")


MOE = (
    rows.router("mixer.gate"),
    replace(rows.CORRECTION_BIAS, name="mixer.gate.e_score_correction_bias", when=""),
    _latent("fc1_latent_proj", ("latent", "hidden"), "latent_in"),
    _latent("fc2_latent_proj", ("hidden", "latent"), "latent_out"),
    *_ungated(rows.routed_experts("mixer.experts"), "moe_hidden"),
    *_ungated(
        rows.gated_mlp(
            "mixer.shared_experts", "shared", Role.SHARED_EXPERTS, layers="moe_layers", when="n_shared_experts"
        )
    ),
)
"""The latent projections belong to no role: every token passes them, whichever experts it has."""

MLP = _ungated(rows.gated_mlp("mixer", layers="dense_layers"))

_NORM = rows.norm("norm", "hidden")
_FC = next(row for row in rows.MTP if row.part == "fc")
_ENTRY = (rows.norm("enorm", "hidden"), rows.norm("hnorm", "hidden"), replace(_FC, protected=False))
"""What an MTP layer begins with; servers build its projection as they do any other linear layer."""


def _ahead(number: int, block: tuple[Row, ...]) -> Block:
    return Block(f"mtp.layers.{number}", block, over="num_mtp_layers", outer=Role.MTP, outer_depth=1)


FAMILY = Family(
    name="nemotron_h",
    architectures=("NemotronHForCausalLM",),
    model_types=("nemotron_h",),
    fields=(
        _kind_list("layers_block_type", "hybrid_override_pattern"),
        fields.whole("num_hidden_layers", most=fields.MAX_LAYERS, default=lambda f: len(f["layers_block_type"])),
        *(field for field in fields.DECODER if field.fact != "num_hidden_layers"),
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        fields.DENSE_MLP,
        fields.flag("mlp_bias"),
        fields.flag("use_bias"),
        fields.flag("use_conv_bias", default=True),
        fields.whole("mamba_num_heads"),
        fields.whole("mamba_head_dim"),
        fields.whole("mamba_n_groups", key="n_groups"),
        fields.whole("ssm_state_size"),
        fields.whole("conv_kernel"),
        *fields.moe("n_routed_experts"),
        fields.SHARED_EXPERTS,
        fields.whole("moe_shared_expert_intermediate_size", default=lambda f: f["moe_intermediate_size"]),
        fields.whole("moe_latent_size", default=None),
        fields.whole("num_mtp_layers", key="num_nextn_predict_layers", least=0, most=1, default=0),
        _kind_list("mtp_layers_block_type", "mtp_hybrid_override_pattern", default=_AHEAD),
    ),
    blocks=(
        Block("backbone", (replace(rows.EMBEDDING, name="embeddings.weight"),)),
        Block("backbone.layers.{l}", (_NORM, *MAMBA, *ATTENTION, *MOE, *MLP), over="num_hidden_layers"),
        Block("backbone", (rows.norm("norm_f", "hidden"),)),
        Block("", (replace(rows.LM_HEAD, tied_to="backbone.embeddings"),)),
        _ahead(0, (*_ENTRY, _NORM, *ATTENTION)),
        _ahead(1, (_NORM, *MOE, rows.norm("final_layernorm", "hidden"))),
    ),
    derive=_derive,
    sizes=SIZES,
    small=_small,
)
