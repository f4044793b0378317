"""MiniMax-M2, M2.5 and M2.7: every layer routed, no shared expert; norms over all heads at once, the router in FP32.

`num_mtp_modules` announces MTP layers, but no released checkpoint stores one.
"""

from dataclasses import replace

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family

_WIDE_NORMS = {"self_attn.q_norm.weight": "query", "self_attn.k_norm.weight": "key_value"}
_ATTENTION = tuple(
    replace(row, shape=(_WIDE_NORMS[row.name],)) if row.name in _WIDE_NORMS else row
    for row in rows.GROUPED_QUERY_ATTENTION
)


def _derive(facts: Facts) -> Facts:
    return {
        **fields.grouped_heads(facts),
        **fields.no_bias(facts),
        **fields.sparse_layers(facts, lambda layer: True),
        "correction_bias": facts["use_routing_bias"],
    }


FAMILY = Family(
    name="minimax_m2",
    architectures=("MiniMaxM2ForCausalLM",),
    model_types=("minimax_m2",),
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        fields.flag("use_qk_norm", default=True),
        fields.flag("use_routing_bias", default=True),
        *fields.moe("num_local_experts", "intermediate_size"),
    ),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *_ATTENTION,
            replace(rows.router("block_sparse_moe.gate"), dtype="fp32"),
            replace(rows.CORRECTION_BIAS, name="block_sparse_moe.e_score_correction_bias"),
            *rows.routed_experts("block_sparse_moe.experts", ("w1", "w3", "w2")),
        )
    ),
    derive=_derive,
)
