"""Qwen2 and Qwen2.5, dense: biases on q, k and v, whatever `config.json` says."""

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family


def _derive(facts: Facts) -> Facts:
    return {**fields.grouped_heads(facts), "attention_bias": True}


FAMILY = Family(
    name="qwen2",
    architectures=("Qwen2ForCausalLM",),
    model_types=("qwen2",),
    fields=(*fields.DECODER, fields.KEY_VALUE_HEADS, fields.HEAD_DIM_OR_SPLIT, fields.DENSE_MLP),
    blocks=rows.decoder((*rows.layer_norms(), *rows.GROUPED_QUERY_ATTENTION, *rows.gated_mlp())),
    derive=_derive,
)
