"""Mixtral: every layer routed; `intermediate_size` is the width of an expert."""

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family


def _derive(facts: Facts) -> Facts:
    return {
        **fields.grouped_heads(facts),
        **fields.sparse_layers(facts, lambda layer: True),
        "attention_bias": False,
    }


FAMILY = Family(
    name="mixtral",
    architectures=("MixtralForCausalLM",),
    model_types=("mixtral",),
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM_OR_SPLIT,
        *fields.moe("num_local_experts", "intermediate_size"),
    ),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *rows.GROUPED_QUERY_ATTENTION,
            rows.router("block_sparse_moe.gate"),
            *rows.routed_experts("block_sparse_moe.experts", ("w1", "w3", "w2")),
        )
    ),
    derive=_derive,
)
