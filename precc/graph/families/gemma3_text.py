"""Gemma 3 without a tower: a norm before and after attention and the MLP, and on each head of queries and keys.

Releases leave out of `config.json` what is the default of its class.
"""

from dataclasses import replace

from precc.graph.families import fields, rows
from precc.graph.families.table import Facts, Family

FIELDS = (
    *(replace(field, default=262_208) if field.fact == "vocab_size" else field for field in fields.DECODER),
    fields.whole("num_attention_heads", default=8),
    fields.flag("tie_word_embeddings", default=True),
    fields.whole("num_key_value_heads", default=4),
    fields.whole("head_dim", default=256),
    fields.DENSE_MLP,
)

LAYER = (
    rows.norm("input_layernorm", "hidden"),
    *rows.GROUPED_QUERY_ATTENTION,
    rows.norm("post_attention_layernorm", "hidden"),
    rows.norm("pre_feedforward_layernorm", "hidden"),
    *rows.gated_mlp(),
    rows.norm("post_feedforward_layernorm", "hidden"),
)


def derive(facts: Facts) -> Facts:
    """Norms on heads, no biases."""
    return {**fields.grouped_heads(facts), **fields.no_bias(facts), "use_qk_norm": True}


FAMILY = Family(
    name="gemma3_text",
    architectures=("Gemma3ForCausalLM",),
    model_types=("gemma3_text",),
    fields=FIELDS,
    blocks=rows.decoder(LAYER),
    derive=derive,
)
