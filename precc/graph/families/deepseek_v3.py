"""DeepSeek-V3 and R1, and what has their shape: Kimi-K2, Moonlight."""

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family, Row

MOE: tuple[Row, ...] = (
    rows.router(),
    rows.CORRECTION_BIAS,
    *rows.routed_experts(),
    *rows.SHARED_EXPERTS,
)

FIELDS = (
    *fields.DECODER,
    *fields.MLA,
    fields.DENSE_MLP,
    *fields.moe("n_routed_experts"),
    fields.SHARED_EXPERTS,
    fields.DENSE_FIRST,
    fields.MOE_FREQUENCY,
    fields.word("topk_method", ("noaux_tc", "group_limited_greedy", "greedy"), "noaux_tc"),
    fields.MTP_LAYERS,
)


def derive(facts: Facts) -> Facts:
    """Which layers are sparse, and whether routing is corrected by a bias."""
    return {
        **fields.no_bias(facts),
        **fields.sparse_after_dense(facts),
        "correction_bias": facts["topk_method"] == "noaux_tc",
    }


FAMILY = Family(
    name="deepseek_v3",
    architectures=("DeepseekV3ForCausalLM",),
    model_types=("deepseek_v3", "kimi_k2"),
    fields=FIELDS,
    blocks=rows.decoder(
        (*rows.layer_norms(), *rows.MULTI_HEAD_LATENT_ATTENTION, *rows.DENSE_MLP, *MOE),
        mtp=(*rows.MTP, *rows.layer_norms(), *rows.MULTI_HEAD_LATENT_ATTENTION, *MOE),
    ),
    derive=derive,
)
