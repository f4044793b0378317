"""Qwen3.5, dense, with its vision tower: gated delta nets and, in every fourth layer, gated attention."""

from precc.graph.families import fields, linear_attention, rows, vision
from precc.graph.families.table import Block, Facts, Family, Row

ROOT = "model.language_model"

FIELDS = (
    *fields.DECODER,
    fields.KEY_VALUE_HEADS,
    fields.HEAD_DIM,
    fields.flag("attn_output_gate", default=True),
    *linear_attention.FIELDS,
    fields.whole("num_mtp_layers", key="mtp_num_hidden_layers", least=0, most=16, default=0),
    fields.flag("mtp_use_dedicated_embeddings"),
    *vision.FIELDS,
)


def derive(facts: Facts) -> Facts:
    """What follows from the fields of every Qwen3.5."""
    return {
        **fields.grouped_heads(facts),
        **fields.no_bias(facts),
        **fields.only(facts, "attn_output_gate", True),
        **fields.only(facts, "mtp_use_dedicated_embeddings", False),
        **linear_attention.derive(facts),
        **vision.derive(facts),
    }


def small(facts: Facts) -> Facts:
    """The delta nets and the tower of a small model."""
    return {**linear_attention.small(facts), **vision.small(facts)}


def blocks(mlp: tuple[Row, ...], mtp_mlp: tuple[Row, ...]) -> tuple[Block, ...]:
    """The decoder with its MLP or experts, the MTP layers with theirs, the tower."""
    decoder = (
        *rows.layer_norms(),
        *linear_attention.gated_attention("full_layers"),
        *linear_attention.gated_delta_net(linear_attention.APART, dtype="fp32"),
        *mlp,
    )
    return rows.decoder(decoder, root=ROOT, more=(*linear_attention.ahead(mtp_mlp), *vision.TOWER))


FAMILY = Family(
    name="qwen3_5",
    architectures=("Qwen3_5ForConditionalGeneration",),
    model_types=("qwen3_5",),
    fields=(*FIELDS, fields.DENSE_MLP),
    blocks=blocks(rows.gated_mlp(), rows.gated_mlp()),
    derive=derive,
    sizes={**linear_attention.SIZES, **vision.SIZES},
    small=small,
    text_model_type="qwen3_5_text",
)
