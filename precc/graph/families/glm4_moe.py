"""GLM-4.5, 4.6 and 4.7: grouped-query attention with biases, shared experts, an MTP layer."""

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family

_MOE = (rows.router(), rows.CORRECTION_BIAS, *rows.routed_experts(), *rows.SHARED_EXPERTS)


def _derive(facts: Facts) -> Facts:
    return {**fields.grouped_heads(facts), **fields.sparse_after_dense(facts), "correction_bias": True}


FAMILY = Family(
    name="glm4_moe",
    architectures=("Glm4MoeForCausalLM",),
    model_types=("glm4_moe",),
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        fields.flag("use_qk_norm"),
        fields.DENSE_MLP,
        *fields.moe("n_routed_experts"),
        fields.SHARED_EXPERTS,
        fields.DENSE_FIRST,
        fields.MTP_LAYERS,
    ),
    blocks=rows.decoder(
        (*rows.layer_norms(), *rows.GROUPED_QUERY_ATTENTION, *rows.DENSE_MLP, *_MOE),
        mtp=(*rows.MTP, *rows.layer_norms(), *rows.GROUPED_QUERY_ATTENTION, *_MOE),
    ),
    derive=_derive,
)
