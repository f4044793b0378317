"""Kimi-K3: delta attention in most layers, gated latent attention in the others, experts in a narrower space, a tower.

`linear_attn_config` counts layers from one. Kimi delta attention (KDA) projects the input to queries, keys, values and
an output gate, to a write strength for each head, and, by way of one head's width, to a decay for each channel. Every
block's input is a mixture of what came before it: an attention residual, which scores its sources with one row. Routed
experts multiply in the space of `routed_expert_hidden_size`, with a projection into it and one out of it, which the
release keeps in BF16 as it does all but the experts, though its `config_groups` name every `Linear`. Their own names
alone reach these, and what scores, decays and write strengths come from: SGLang multiplies them in BF16.

The names, dtypes and 497,220 tensors are those of the released index and headers, as sqliteai/waste (`docs/K3.md`)
reports them: `A_log` is a number for each head, in as many places as a head is wide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from precc.graph.errors import FieldError
from precc.graph.families import fields, linear_attention, rows
from precc.graph.families.table import Block, Facts, Family, Row
from precc.syntax.words import Role

_LINEAR = "linear_attn_config"
_VISION = "vision_config"
_ROOT = "language_model.model"

_BLOCK = 128
"""The widest block of any format."""


_FIELDS = (
    *fields.DECODER,
    *fields.MLA,
    fields.DENSE_MLP,
    fields.whole("num_experts", most=fields.MAX_EXPERTS),
    fields.whole("num_experts_per_tok", key="num_experts_per_token", most=fields.MAX_EXPERTS),
    fields.whole("moe_intermediate_size"),
    fields.whole("moe_latent_size", key="routed_expert_hidden_size"),
    fields.whole("n_shared_experts", key="num_shared_experts", least=0, default=0),
    fields.DENSE_FIRST,
    fields.MOE_FREQUENCY,
    fields.layer_list("kda_layers", key=f"{_LINEAR}.kda_layers"),
    fields.layer_list("full_attn_layers", key=f"{_LINEAR}.full_attn_layers"),
    fields.whole("linear_num_heads", key=f"{_LINEAR}.num_heads"),
    fields.whole("linear_head_dim", key=f"{_LINEAR}.head_dim"),
    fields.whole("linear_conv_kernel_dim", key=f"{_LINEAR}.short_conv_kernel_size"),
    fields.always(f"{_LINEAR}.use_full_rank_gate", True),
    fields.always("mla_use_output_gate", True),
    fields.always("latent_moe_use_norm", True),
    fields.whole("attn_res_block_size", most=fields.MAX_LAYERS),
    fields.whole("num_mtp_layers", key="num_nextn_predict_layers", least=0, most=0, default=0),
    *(
        fields.whole(f"vision_{name}", key=f"{_VISION}.vt_{name}")
        for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    ),
    fields.whole("vision_qkv_size", key=f"{_VISION}.qkv_hidden_size"),
    fields.whole("vision_patch_size", key=f"{_VISION}.patch_size"),
    fields.whole("vision_height", key=f"{_VISION}.init_pos_emb_height"),
    fields.whole("vision_width", key=f"{_VISION}.init_pos_emb_width"),
    fields.pair("vision_merged", key=f"{_VISION}.merge_kernel_size"),
    *(fields.always(f"{_VISION}.{name}", False) for name in ("attn_bias", "linear_bias", "patch_embed_proj_bias")),
    fields.always(f"{_VISION}.norm_type", "rmsnorm"),
)

_SIZES: Mapping[str, Callable[[Facts], int]] = {
    "kda": lambda f: f["linear_num_heads"] * f["linear_head_dim"],
    "kda_head": lambda f: f["linear_head_dim"],
    "kda_heads": lambda f: f["linear_num_heads"],
    "kda_kernel": lambda f: f["linear_conv_kernel_dim"],
    "latent": lambda f: f["moe_latent_size"],
    "three": lambda f: 3,
    "vision": lambda f: f["vision_hidden_size"],
    "vision_qkv": lambda f: f["vision_qkv_size"],
    "vision_mlp": lambda f: f["vision_intermediate_size"],
    "vision_merged": lambda f: f["vision_hidden_size"] * f["vision_merged"][0] * f["vision_merged"][1],
    "vision_height": lambda f: f["vision_height"],
    "vision_width": lambda f: f["vision_width"],
    "patch": lambda f: f["vision_patch_size"],
}


def _derive(facts: Facts) -> Facts:
    layers, linear, full = facts["num_hidden_layers"], facts["kda_layers"], facts["full_attn_layers"]
    if sorted((*linear, *full)) != [*range(1, layers + 1)]:
        allowed = f"with full_attn_layers, each of the layers from 1 to {layers} once"
        raise FieldError(f"{_LINEAR}.kda_layers", list(linear), allowed)
    if facts["linear_num_heads"] > facts["linear_head_dim"]:
        allowed = f"at most {_LINEAR}.head_dim ({facts['linear_head_dim']}), in which the decays are stored"
        raise FieldError(f"{_LINEAR}.num_heads", facts["linear_num_heads"], allowed)
    return {
        **fields.no_bias(facts),
        **fields.sparse_after_dense(facts),
        "linear_layers": tuple(layer - 1 for layer in linear),
        "full_layers": tuple(layer - 1 for layer in full),
    }


def _small(facts: Facts) -> Facts:
    """Fewer heads of the same width, a tower with two, and a latent space of another width than the decoder.

    Marlin pads what an MXFP4 expert multiplies to 256 channels.
    """
    return {
        "linear_num_heads": min(3, facts["linear_num_heads"]),
        "moe_latent_size": 4 * _BLOCK,
        "vision_num_attention_heads": 2,
        "vision_qkv_size": 2 * _BLOCK,
    }


# --- attention ---------------------------------------------------------------------------------------


def _kda(name: str, shape: tuple[str, ...], part: str, fused: str = "") -> Row:
    """A projection of delta attention."""
    return Row(
        f"self_attn.{name}.weight",
        shape,
        Role.LINEAR_ATTENTION,
        part,
        contracted=(1,),
        parallel="column",
        sglang=fused,
        scale_group=fused,
        layers="linear_layers",
    )


def _beside(name: str, shape: tuple[str, ...], part: str) -> Row:
    """A parameter of delta attention that is no GEMM operand, stored in FP32."""
    return linear_attention.beside(f"self_attn.{name}", shape, part, dtype="fp32")


_NORM = rows.norm("self_attn.o_norm", "kda_head", dtype="fp32", within=frozenset({Role.LINEAR_ATTENTION}))

DELTA_ATTENTION = (
    *(_kda(f"{part}_proj", ("kda", "hidden"), f"kda_{part}", "self_attn.qkvg") for part in "qkvg"),
    replace(_kda("b_proj", ("kda_heads", "hidden"), "b"), protected=True),
    replace(_kda("f_a_proj", ("kda_head", "hidden"), "f_a"), parallel=None, protected=True),
    replace(_kda("f_b_proj", ("kda", "kda_head"), "f_b"), protected=True),
    replace(_kda("o_proj", ("hidden", "kda"), "out"), parallel="row"),
    *(_beside(f"{part}_conv1d.weight", ("kda", "one", "kda_kernel"), "conv") for part in "qkv"),
    _beside("A_log", ("kda_head",), "decay"),
    _beside("dt_bias", ("kda",), "bias"),
    replace(_NORM, layers="linear_layers"),
)

_GATE = Row(
    "self_attn.g_proj.weight",
    ("mla_value", "hidden"),
    Role.ATTENTION,
    "output_gate",
    contracted=(1,),
    parallel="column",
)
LATENT_ATTENTION = tuple(replace(row, layers="full_layers") for row in (*rows.MULTI_HEAD_LATENT_ATTENTION, _GATE))


def _mixture(below: str) -> tuple[Row, ...]:
    """What mixes the sources of a block's input: a norm, and the row that scores them."""
    score = Row(f"{below}_proj.weight", ("one", "hidden"), None, "score", contracted=(1,), protected=True)
    return rows.norm(f"{below}_norm", "hidden"), score


# --- experts -----------------------------------------------------------------------------------------

_MOE = "block_sparse_moe"


def _latent(name: str, shape: tuple[str, str], part: str) -> Row:
    weight = Row(f"{_MOE}.{name}.weight", shape, None, part, contracted=(1,), protected=True)
    return replace(weight, layers="moe_layers")


def _narrow(row: Row) -> Row:
    """A routed expert's weight in the latent space."""
    return replace(row, shape=tuple("latent" if size == "hidden" else size for size in row.shape))


MOE = (
    rows.router(f"{_MOE}.gate"),
    replace(rows.CORRECTION_BIAS, name=f"{_MOE}.gate.e_score_correction_bias", when=""),
    _latent("routed_expert_down_proj", ("latent", "hidden"), "latent_in"),
    replace(rows.norm(f"{_MOE}.routed_expert_norm", "latent"), layers="moe_layers"),
    _latent("routed_expert_up_proj", ("hidden", "latent"), "latent_out"),
    *map(_narrow, rows.routed_experts(f"{_MOE}.experts", ("w1", "w3", "w2"))),
    *rows.gated_mlp(
        f"{_MOE}.shared_experts", "shared", Role.SHARED_EXPERTS, layers="moe_layers", when="n_shared_experts"
    ),
)

# --- the tower ---------------------------------------------------------------------------------------


def _tower_linear(name: str, output: str, input: str, part: str) -> Row:
    """A linear layer of the tower, which has no biases."""
    return rows.tower_linear(name, output, input, part)[0]


_PATCHES = Row("proj.weight", ("vision", "three", "patch", "patch"), None, "conv", protected=True)
_POSITIONS = Row("pos_emb.weight", ("vision_height", "vision_width", "vision"), None, "positions", protected=True)
_LAYER = (
    rows.norm("norm0", "vision"),
    rows.norm("norm1", "vision"),
    _tower_linear("wqkv", "3*vision_qkv", "vision", "qkv"),
    _tower_linear("wo", "vision", "vision_qkv", "o"),
    _tower_linear("mlp.fc0", "vision_mlp", "vision", "up"),
    _tower_linear("mlp.fc1", "vision", "vision_mlp", "down"),
)
_PROJECTOR = (
    _tower_linear("proj.0", "vision_merged", "vision_merged", "up"),
    _tower_linear("proj.2", "hidden", "vision_merged", "down"),
    rows.norm("post_norm", "hidden"),
)

_TOWER = (
    rows.tower("vision_tower.patch_embed", _PATCHES, _POSITIONS),
    rows.tower("vision_tower.encoder.blocks.{l}", *_LAYER, over="vision_num_hidden_layers"),
    rows.tower("vision_tower.encoder", rows.norm("final_layernorm", "vision")),
    rows.tower("mm_projector", *_PROJECTOR),
)

FAMILY = Family(
    name="kimi_k3",
    architectures=("KimiK3ForConditionalGeneration",),
    model_types=("kimi_k3",),
    text_model_type="kimi_linear",
    fields=_FIELDS,
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *_mixture("self_attention_res"),
            *_mixture("mlp_res"),
            *DELTA_ATTENTION,
            *LATENT_ATTENTION,
            *rows.DENSE_MLP,
            *MOE,
        ),
        root=_ROOT,
        head="language_model",
        more=(Block(_ROOT, _mixture("output_attn_res")), *_TOWER),
    ),
    derive=_derive,
    sizes=_SIZES,
    small=_small,
)
