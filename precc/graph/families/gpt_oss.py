"""gpt-oss: every layer routed, experts stacked `[experts, input, output]`, gate and up in turn; biases everywhere."""

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family, Row
from precc.syntax.words import Role


def _derive(facts: Facts) -> Facts:
    return {
        **fields.grouped_heads(facts),
        **fields.sparse_layers(facts, lambda layer: True),
        "attention_output_bias": facts["attention_bias"],
    }


_SINKS = Row(
    "self_attn.sinks", ("heads",), None, "sinks", frozenset({Role.ATTENTION}), parallel="column", protected=True
)
_ROUTER = rows.router("mlp.router")
_EXPERTS = rows.stacked_experts(transposed=True, interleaved=True)

FAMILY = Family(
    name="gpt_oss",
    architectures=("GptOssForCausalLM",),
    model_types=("gpt_oss",),
    fields=(
        *fields.DECODER,
        fields.flag("attention_bias", default=True),
        fields.KEY_VALUE_HEADS,
        fields.HEAD_DIM,
        *fields.moe("num_local_experts", "intermediate_size"),
    ),
    blocks=rows.decoder(
        (
            *rows.layer_norms(),
            *rows.GROUPED_QUERY_ATTENTION,
            _SINKS,
            _ROUTER,
            rows.bias(_ROUTER, ""),
            *_EXPERTS,
            *map(rows.stacked_bias, _EXPERTS),
        )
    ),
    derive=_derive,
    sizes={"heads": lambda facts: facts["num_attention_heads"]},
)
