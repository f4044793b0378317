"""DeepSeek-V3.2: V3 with a lightning indexer in every layer, and layer norms stored in FP32."""

from precc.graph.errors import FieldError
from precc.graph.families import deepseek_v3, fields, rows
from precc.graph.families.table import Facts, Family

_ATTENTION = (*rows.layer_norms("fp32"), *rows.MULTI_HEAD_LATENT_ATTENTION, *rows.INDEXER)

FIELDS = (
    *deepseek_v3.FIELDS,
    fields.whole("index_n_heads"),
    fields.whole("index_head_dim"),
    fields.whole("index_topk"),
    fields.flag("indexer_rope_interleave"),
)


def derive(facts: Facts) -> Facts:
    """What follows in DeepSeek-V3; the indexer needs a compressed query."""
    if facts["q_lora_rank"] is None:
        raise FieldError("q_lora_rank", None, "an integer: the indexer reads the compressed query")
    return deepseek_v3.derive(facts)


FAMILY = Family(
    name="deepseek_v32",
    architectures=("DeepseekV32ForCausalLM",),
    model_types=("deepseek_v32",),
    fields=FIELDS,
    blocks=rows.decoder(
        (*_ATTENTION, *rows.DENSE_MLP, *deepseek_v3.MOE),
        mtp=(*rows.MTP, *_ATTENTION, *deepseek_v3.MOE),
    ),
    derive=derive,
)
