"""GLM-5, 5.1 and 5.2: DeepSeek-V3.2's attention; an indexer in every layer, or in some whose choice others reuse.

Which layers have one is listed (`indexer_types`), spelled (`index_topk_pattern`, `F` for full, `S` for shared), or a
rhythm: the first `index_skip_topk_offset` layers, then every `index_topk_freq`-th. SGLang 0.5.23 and transformers 5
read these in this order, and by these defaults (`dsa_layer_skips_topk`, `GlmMoeDsaConfig`).
"""

from __future__ import annotations

from dataclasses import replace

from precc.graph.errors import FieldError
from precc.graph.families import deepseek_v3, deepseek_v32, fields, rows
from precc.graph.families.table import Facts, Family

_FULL, _SHARED = "full", "shared"
_DENSE, _SPARSE = "dense", "sparse"
_SPELLED = {"F": _FULL, "S": _SHARED}


def _indexer_types(facts: Facts) -> tuple[str, ...]:
    """The kind of each layer where they are not listed."""
    pattern, layers = facts["index_topk_pattern"], range(facts["num_hidden_layers"])
    if pattern is not None:
        if len(pattern) != len(layers):
            raise FieldError("index_topk_pattern", pattern, f"a text of {len(layers)} letters, one a layer")
        return tuple(map(_SPELLED.__getitem__, pattern))
    first, every = facts["index_skip_topk_offset"], facts["index_topk_freq"]
    return tuple(_SHARED if max(layer - first + 1, 0) % every else _FULL for layer in layers)


def _is_routed(facts: Facts, layer: int) -> bool:
    return bool(layer >= facts["first_k_dense_replace"] and layer % facts["moe_layer_freq"] == 0)


def _mlp_types(facts: Facts) -> tuple[str, ...]:
    return tuple(_SPARSE if _is_routed(facts, layer) else _DENSE for layer in range(facts["num_hidden_layers"]))


def _is_pattern(value: object) -> bool:
    return isinstance(value, str) and all(letter in _SPELLED for letter in value)


def _derive(facts: Facts) -> Facts:
    fields.one_a_layer(facts, "indexer_types")
    kinds = facts["indexer_types"]
    if kinds[0] != _FULL:
        raise FieldError("indexer_types", list(kinds), "full in layer 0, which has no earlier choice to reuse")
    if facts["mlp_layer_types"] != _mlp_types(facts):
        allowed = "what first_k_dense_replace and moe_layer_freq say"
        raise FieldError("mlp_layer_types", list(facts["mlp_layer_types"]), allowed)
    return {
        **deepseek_v32.derive(facts),
        "indexer_layers": tuple(layer for layer, kind in enumerate(kinds) if kind == _FULL),
    }


_ATTENTION = (
    *rows.layer_norms(),
    *rows.MULTI_HEAD_LATENT_ATTENTION,
    *(replace(row, layers="indexer_layers") for row in rows.INDEXER),
)

FAMILY = Family(
    name="glm_moe_dsa",
    architectures=("GlmMoeDsaForCausalLM",),
    model_types=("glm_moe_dsa",),
    fields=(
        *deepseek_v32.FIELDS,
        fields.Field("index_topk_pattern", "index_topk_pattern", _is_pattern, "a text of F and S, or null", None),
        fields.whole("index_topk_freq", most=fields.MAX_LAYERS, default=1),
        fields.whole("index_skip_topk_offset", most=fields.MAX_LAYERS, default=2),
        fields.word_list("indexer_types", (_FULL, _SHARED), _indexer_types),
        fields.word_list("mlp_layer_types", (_DENSE, _SPARSE), _mlp_types),
    ),
    blocks=rows.decoder(
        (*_ATTENTION, *rows.DENSE_MLP, *deepseek_v3.MOE),
        mtp=(*rows.MTP, *_ATTENTION, *deepseek_v3.MOE),
    ),
    derive=_derive,
)
