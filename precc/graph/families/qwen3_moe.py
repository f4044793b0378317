"""Qwen3 with routed experts and no shared one; which layers are dense is listed or every n-th."""

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family


def _derive(facts: Facts) -> Facts:
    fields.listed_layers(facts, "mlp_only_layers")
    step, dense = facts["decoder_sparse_step"], facts["mlp_only_layers"]
    return {
        **fields.grouped_heads(facts),
        **fields.sparse_layers(facts, lambda layer: layer not in dense and (layer + 1) % step == 0),
        "use_qk_norm": True,
        "attention_output_bias": facts["attention_bias"],
    }


FAMILY = Family(
    name="qwen3_moe",
    architectures=("Qwen3MoeForCausalLM",),
    model_types=("qwen3_moe",),
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        fields.DENSE_MLP,
        *fields.moe("num_experts"),
        fields.whole("decoder_sparse_step", most=fields.MAX_LAYERS, default=1),
        fields.layer_list("mlp_only_layers"),
    ),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *rows.GROUPED_QUERY_ATTENTION,
            *rows.DENSE_MLP,
            rows.router(),
            *rows.routed_experts(),
        )
    ),
    derive=_derive,
)
