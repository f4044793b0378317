"""DeepSeek-V2 and V2-Lite: latent attention, shared experts, no correction bias."""

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family


def _derive(facts: Facts) -> Facts:
    return {**fields.no_bias(facts), **fields.sparse_after_dense(facts)}


FAMILY = Family(
    name="deepseek_v2",
    architectures=("DeepseekV2ForCausalLM",),
    model_types=("deepseek_v2",),
    fields=(
        *fields.DECODER,
        *fields.MLA,
        fields.DENSE_MLP,
        *fields.moe("n_routed_experts"),
        fields.SHARED_EXPERTS,
        fields.DENSE_FIRST,
        fields.MOE_FREQUENCY,
    ),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *rows.MULTI_HEAD_LATENT_ATTENTION,
            *rows.DENSE_MLP,
            rows.router(),
            *rows.routed_experts(),
            *rows.SHARED_EXPERTS,
        )
    ),
    derive=_derive,
)
