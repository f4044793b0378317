"""Step-3.7-Flash: full and sliding attention of other widths, a gate for each head, stacked experts, a tower.

`attention_other_setting` is the attention of the layers that slide. Gate, up and down of all experts of a layer are a
tensor each. Every MTP layer slides and has a dense MLP, a head of its own and no embedding; the lists of a
configuration have an entry for each behind those of the decoder. All releases keep the gates of heads and the MTP
layers in BF16, and SGLang builds them without a quantization config.

The widths are those of aiconfigurator's configuration of the model and of transformers' `step3p7`; that sliding layers
have 96 heads say aiconfigurator's `Step3p7FlashForCausalLM_cases.yaml` and TensorRT-LLM #14759. The names are those
that transformers and Megatron-Bridge (`step37_bridge.py`) convert: 804 of text and 667 of the tower, as many as the
released headers have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from precc.graph.errors import FieldError
from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family, Row
from precc.graph.model import Parallel
from precc.syntax.words import Role

_OTHER = "attention_other_setting"
_VISION = "vision_config"
_KINDS = ("full_attention", "sliding_attention")
_LISTED_LAYERS = re.compile(r"\d{1,4}(,\d{1,4})*")


def _layers(text: str) -> tuple[int, ...]:
    """The numbers of a list that is written as text."""
    return tuple(map(int, text.split(",")))


def _is_layer_text(value: object) -> bool:
    return isinstance(value, str) and _LISTED_LAYERS.fullmatch(value) is not None


def _is_ratio(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 64


_FIELDS = (
    *fields.DECODER,
    fields.whole("num_key_value_heads", key="num_attention_groups"),
    fields.HEAD_DIM,
    fields.whole("swa_num_attention_heads", key=f"{_OTHER}.num_attention_heads"),
    fields.whole("swa_num_key_value_heads", key=f"{_OTHER}.num_attention_groups"),
    fields.whole("swa_head_dim", key=f"{_OTHER}.head_dim"),
    fields.always("use_head_wise_attn_gate", True),
    fields.word_list("layer_types", _KINDS),
    fields.DENSE_MLP,
    fields.Field("moe_layers_enum", "moe_layers_enum", _is_layer_text, "numbers of layers with commas between"),
    fields.whole("num_experts", key="moe_num_experts", most=fields.MAX_EXPERTS),
    fields.whole("num_experts_per_tok", key="moe_top_k", most=fields.MAX_EXPERTS),
    fields.whole("moe_intermediate_size"),
    fields.whole("shared_expert_intermediate_size", key="share_expert_dim"),
    fields.always("use_moe_router_bias", True),
    fields.MTP_LAYERS,
    fields.whole("vision_hidden_size", key=f"{_VISION}.width"),
    fields.whole("vision_num_hidden_layers", key=f"{_VISION}.layers", most=fields.MAX_LAYERS),
    fields.whole("vision_num_attention_heads", key=f"{_VISION}.heads", most=fields.MAX_LAYERS),
    fields.Field("vision_mlp_ratio", f"{_VISION}.mlp_ratio", _is_ratio, "a number up to 64", 8960 / 1536),
    fields.whole("vision_image_size", key=f"{_VISION}.image_size"),
    fields.whole("vision_patch_size", key=f"{_VISION}.patch_size"),
    *(fields.always(f"{_VISION}.{name}", True) for name in ("use_ln_pre", "use_abs_posemb")),
    *(fields.always(f"{_VISION}.{name}", False) for name in ("use_ln_post", "use_cls_token")),
    fields.always("projector_bias", False),
)

_SIZES: Mapping[str, Callable[[Facts], int]] = {
    "heads": lambda f: f["num_attention_heads"],
    "swa_heads": lambda f: f["swa_num_attention_heads"],
    "swa_query": lambda f: f["swa_num_attention_heads"] * f["swa_head_dim"],
    "swa_key_value": lambda f: f["swa_num_key_value_heads"] * f["swa_head_dim"],
    "three": lambda f: 3,
    "vision": lambda f: f["vision_hidden_size"],
    "vision_mlp": lambda f: int(f["vision_hidden_size"] * f["vision_mlp_ratio"]),
    "vision_positions": lambda f: (f["vision_image_size"] // f["vision_patch_size"]) ** 2,
    "patch": lambda f: f["vision_patch_size"],
}


def _derive(facts: Facts) -> Facts:
    layers, kinds = facts["num_hidden_layers"], facts["layer_types"]
    if len(kinds) not in (layers, layers + facts["num_mtp_layers"]):
        raise FieldError("layer_types", list(kinds), f"a list of {layers} entries, and one for each MTP layer")
    if "full_attention" in kinds[layers:]:
        raise FieldError("layer_types", list(kinds), "sliding_attention behind the decoder's layers")
    heads, groups = facts["swa_num_attention_heads"], facts["swa_num_key_value_heads"]
    if heads % groups:
        raise FieldError(f"{_OTHER}.num_attention_groups", groups, f"a divisor of its num_attention_heads ({heads})")
    if facts["swa_head_dim"] != facts["head_dim"]:
        raise FieldError(f"{_OTHER}.head_dim", facts["swa_head_dim"], f"that of all layers ({facts['head_dim']})")
    routed = _layers(facts["moe_layers_enum"])
    if max(routed) >= layers:
        raise FieldError("moe_layers_enum", facts["moe_layers_enum"], f"numbers of layers, from 0 to {layers - 1}")
    return {
        **fields.grouped_heads(facts),
        **fields.no_bias(facts),
        **fields.sparse_layers(facts, lambda layer: layer in routed),
        "use_qk_norm": True,
        "full_layers": tuple(layer for layer in range(layers) if kinds[layer] == "full_attention"),
        "sliding_layers": tuple(layer for layer in range(layers) if kinds[layer] == "sliding_attention"),
    }


def _small(facts: Facts) -> Facts:
    """A shared expert as wide as the others, and a small picture for a tower of two heads and whole widths."""
    return {
        "vision_mlp_ratio": 3.0,
        "shared_expert_intermediate_size": facts["moe_intermediate_size"],
        "vision_num_attention_heads": 2,
        "vision_image_size": 2 * facts["vision_patch_size"],
    }


# --- the decoder -------------------------------------------------------------------------------------


def _attention(prefix: str, layers: str) -> tuple[Row, ...]:
    """Grouped-query attention of its own width, and the gate for each of its heads."""
    sizes = {
        "q": (f"{prefix}query", "hidden"),
        "k": (f"{prefix}key_value", "hidden"),
        "v": (f"{prefix}key_value", "hidden"),
        "o": ("hidden", f"{prefix}query"),
    }
    gate = Row(
        "self_attn.g_proj.weight",
        (f"{prefix}heads", "hidden"),
        Role.ATTENTION,
        "output_gate",
        contracted=(1,),
        parallel="column",
        protected=True,
    )
    own = (row for row in rows.GROUPED_QUERY_ATTENTION if row.part in (*sizes, "norm"))
    return tuple(replace(row, shape=sizes.get(row.part, row.shape), layers=layers) for row in (*own, gate))


def _stack(part: str, shape: tuple[str, str], parallel: Parallel) -> Row:
    """One projection of all experts of a layer."""
    return Row(
        f"moe.{part}_proj.weight",
        ("experts", *shape),
        Role.ROUTED_EXPERTS,
        part,
        contracted=(2,),
        parallel=parallel,
        sglang="moe.experts",
        scale_group="" if part == "down" else "moe.gate_up",
        layers="moe_layers",
    )


_SLIDES = _attention("swa_", "sliding_layers")
_LAYER = (
    *rows.layer_norms(),
    *_attention("", "full_layers"),
    *_SLIDES,
    *rows.DENSE_MLP,
    rows.router("moe.gate"),
    replace(rows.CORRECTION_BIAS, name="moe.router_bias", when=""),
    _stack("gate", ("expert", "hidden"), "column"),
    _stack("up", ("expert", "hidden"), "column"),
    _stack("down", ("hidden", "expert"), "row"),
    *rows.gated_mlp("share_expert", "shared", Role.SHARED_EXPERTS, layers="moe_layers"),
)

_FC = next(row for row in rows.MTP if row.part == "fc")
_HEAD = replace(rows.LM_HEAD, name="transformer.shared_head.output.weight", tied_to="", when="")
_AHEAD = tuple(
    replace(row, protected=True, layers="")
    for row in (
        rows.norm("enorm", "hidden"),
        rows.norm("hnorm", "hidden"),
        _FC,
        *rows.layer_norms(),
        *_SLIDES,
        *rows.gated_mlp(),
        rows.norm("transformer.shared_head.norm", "hidden"),
        _HEAD,
    )
)

# --- the tower ---------------------------------------------------------------------------------------


def _scale(name: str) -> Row:
    """The weights of a residual branch, one for each channel."""
    return Row(f"{name}.gamma", ("vision",), None, "scale", protected=True)


def _downsampler(number: int, width: str, twice: str) -> tuple[Row, ...]:
    weight = Row(f"vit_downsampler{number}.weight", (twice, width, "three", "three"), None, "conv", protected=True)
    return weight, rows.bias(weight, "")


_PATCHES = Row("conv1.weight", ("vision", "three", "patch", "patch"), None, "conv", protected=True)
_POSITIONS = Row("positional_embedding", ("vision_positions", "vision"), None, "positions", protected=True)
_QKV = Row("attn.in_proj_weight", ("3*vision", "vision"), None, "qkv", contracted=(1,))
_BLOCK = (
    *rows.tower_norm("ln_1"),
    *rows.tower_norm("ln_2"),
    _QKV,
    Row("attn.in_proj_bias", ("3*vision",), None, "bias", protected=True),
    *rows.tower_linear("attn.out_proj", "vision", "vision", "o"),
    *rows.tower_linear("mlp.c_fc", "vision_mlp", "vision", "up"),
    *rows.tower_linear("mlp.c_proj", "vision", "vision_mlp", "down"),
    _scale("ls_1"),
    _scale("ls_2"),
)

_TOWER = (
    rows.tower("vision_model", _PATCHES, *rows.tower_norm("ln_pre"), _POSITIONS),
    rows.tower("vision_model.transformer.resblocks.{l}", *_BLOCK, over="vision_num_hidden_layers"),
    rows.tower(
        "vision_model",
        *_downsampler(1, "vision", "2*vision"),
        *_downsampler(2, "2*vision", "4*vision"),
    ),
    rows.tower("", rows.tower_linear("vit_large_projector", "hidden", "4*vision", "projector")[0]),
)

FAMILY = Family(
    name="step3p7",
    architectures=("Step3p7ForConditionalGeneration",),
    model_types=("step3p7",),
    text_model_type="step3p5",
    fields=_FIELDS,
    blocks=rows.decoder(_LAYER, mtp=_AHEAD, more=_TOWER),
    derive=_derive,
    sizes=_SIZES,
    small=_small,
)
