"""Qwen3-VL with routed experts, stacked `[experts, input, output]`: Qwen3-MoE's decoder beside a vision tower."""

from precc.graph.families import qwen3_moe, rows, vision
from precc.graph.families.table import Facts, Family


def _derive(facts: Facts) -> Facts:
    return {**qwen3_moe.FAMILY.derive(facts), **vision.derive(facts)}


FAMILY = Family(
    name="qwen3_vl_moe",
    architectures=("Qwen3VLMoeForConditionalGeneration",),
    model_types=("qwen3_vl_moe",),
    fields=(*qwen3_moe.FAMILY.fields, *vision.FIELDS),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *rows.GROUPED_QUERY_ATTENTION,
            *rows.DENSE_MLP,
            rows.router(),
            *rows.stacked_experts(transposed=True),
        ),
        root="model.language_model",
        more=vision.TOWER,
    ),
    derive=_derive,
    sizes=vision.SIZES,
    small=vision.small,
    text_model_type="qwen3_vl_moe_text",
)
