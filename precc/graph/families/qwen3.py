"""Qwen3, dense: a norm on each head of queries and keys."""

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family


def _derive(facts: Facts) -> Facts:
    return {
        **fields.grouped_heads(facts),
        "use_qk_norm": True,
        "attention_output_bias": facts["attention_bias"],
    }


FAMILY = Family(
    name="qwen3",
    architectures=("Qwen3ForCausalLM",),
    model_types=("qwen3",),
    fields=(*fields.DECODER, fields.KEY_VALUE_HEADS, fields.HEAD_DIM, fields.DENSE_MLP),
    blocks=rows.decoder((*rows.layer_norms(), *rows.GROUPED_QUERY_ATTENTION, *rows.gated_mlp())),
    derive=_derive,
)
