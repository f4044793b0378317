"""Qwen3-Next: gated delta nets and, in every fourth layer, gated attention; routed experts beside one shared expert.

`config.json` says nothing of the MTP layer that the checkpoints store below `mtp`.
"""

from precc.graph.families import fields, linear_attention, rows
from precc.graph.families.table import Facts, Family

MOE = (rows.router(), *linear_attention.SHARED_EXPERT, *rows.routed_experts())

ROUTED_FIELDS = (
    *fields.moe("num_experts"),
    fields.whole("shared_expert_intermediate_size"),
    fields.whole("decoder_sparse_step", most=fields.MAX_LAYERS, default=1),
    fields.layer_list("mlp_only_layers"),
)


def derive_routed(facts: Facts) -> Facts:
    """Every layer is routed: these classes have no dense one."""
    return {
        **fields.only(facts, "decoder_sparse_step", 1),
        **fields.only(facts, "mlp_only_layers", ()),
        **fields.sparse_layers(facts, lambda layer: True),
    }


def _derive(facts: Facts) -> Facts:
    return {
        **fields.grouped_heads(facts),
        **fields.no_bias(facts),
        **derive_routed(facts),
        **linear_attention.derive(facts),
    }


FAMILY = Family(
    name="qwen3_next",
    architectures=("Qwen3NextForCausalLM",),
    model_types=("qwen3_next",),
    fields=(
        *fields.DECODER,
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        *ROUTED_FIELDS,
        *linear_attention.FIELDS,
        fields.whole("num_mtp_layers", key="num_nextn_predict_layers", least=0, most=16, default=1),
    ),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *linear_attention.gated_attention("full_layers"),
            *linear_attention.gated_delta_net(linear_attention.JOINED),
            *MOE,
        ),
        more=linear_attention.ahead(MOE),
    ),
    derive=_derive,
    sizes=linear_attention.SIZES,
    small=linear_attention.small,
)
