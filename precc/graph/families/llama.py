"""Llama 2, 3 and what has their shape."""

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family


def _derive(facts: Facts) -> Facts:
    return {**fields.grouped_heads(facts), "attention_output_bias": facts["attention_bias"]}


FAMILY = Family(
    name="llama",
    architectures=("LlamaForCausalLM",),
    model_types=("llama",),
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS_OR_ALL,
        fields.HEAD_DIM_OR_SPLIT,
        fields.DENSE_MLP,
        fields.flag("mlp_bias"),
    ),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *rows.GROUPED_QUERY_ATTENTION,
            *rows.gated_mlp(),
            *(rows.bias(row, "mlp_bias") for row in rows.gated_mlp()),
        )
    ),
    derive=_derive,
)
