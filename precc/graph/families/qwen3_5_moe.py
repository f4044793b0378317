"""Qwen3.5 with routed experts: stacked `[experts, output, input]` in the decoder, one by one in the MTP layer."""

from precc.graph.families import linear_attention, qwen3_5, qwen3_next, rows, vision
from precc.graph.families.table import Facts, Family


def _derive(facts: Facts) -> Facts:
    return {**qwen3_5.derive(facts), **qwen3_next.derive_routed(facts)}


_DECODER = (rows.router(), *linear_attention.SHARED_EXPERT, *rows.stacked_experts())

FAMILY = Family(
    name="qwen3_5_moe",
    architectures=("Qwen3_5MoeForConditionalGeneration",),
    model_types=("qwen3_5_moe",),
    fields=(*qwen3_5.FIELDS, *qwen3_next.ROUTED_FIELDS),
    blocks=qwen3_5.blocks(_DECODER, qwen3_next.MOE),
    derive=_derive,
    sizes={**linear_attention.SIZES, **vision.SIZES},
    small=qwen3_5.small,
    text_model_type="qwen3_5_moe_text",
)
