"""A second, independent expansion of the published tensor templates, to compare the families' tables with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import ceil, prod
from pathlib import Path
from typing import Any

import precc.graph

Config = dict[str, Any]
Row = dict[str, Any]

MODELS = Path(precc.graph.__file__).parent / "models"

TEMPLATES: dict[str, list[Row]] = json.loads(
    (Path(__file__).parent.parent / "data" / "tensor_templates.json").read_text()
)

_HIGH = {"embed", "lm_head", "router", "indexer.weights_proj", "mtp.eh_proj", "mtp.embed", "mtp.head"}


def facts(name: str) -> tuple[Config, bool]:
    """A catalogued configuration, and whether its checkpoint stores the head."""
    entry = json.loads((MODELS / f"{name}.json").read_text())
    return entry["config"], entry.get("lm_head_stored", not entry["config"]["tie_word_embeddings"])


def symbols(config: Config) -> dict[str, int]:
    """The sizes that the templates' shapes are written in."""
    get = config.get
    heads = config["num_attention_heads"]
    head = get("head_dim") or config["hidden_size"] // heads
    expert = get("moe_intermediate_size") or config["intermediate_size"]
    found = {
        "V": config["vocab_size"],
        "H": config["hidden_size"],
        "I": config["intermediate_size"],
        "M": expert,
        "E": get("num_experts") or get("n_routed_experts") or get("num_local_experts"),
        "NH": heads,
        "D": head,
        "Q": heads * head,
        "KV": (get("num_key_value_heads") or heads) * head,
        "QL": get("q_lora_rank"),
        "KL": get("kv_lora_rank"),
        "NO": get("qk_nope_head_dim"),
        "RO": get("qk_rope_head_dim"),
        "VD": get("v_head_dim"),
        "S": (get("n_shared_experts") or 0) * expert,
        "IH": get("index_n_heads"),
        "ID": get("index_head_dim"),
    }
    return {name: value for name, value in found.items() if value is not None}


def expanded(config: Config, lm_head_stored: bool) -> Iterator[tuple[str, int, tuple[int, ...], bool]]:
    """Every tensor: its name (`{e}` kept), how many experts have it, its shape, whether FP8 stores it."""
    sizes = symbols(config)
    layers = config["num_hidden_layers"]
    every = layers + config.get("num_nextn_predict_layers", 0)
    conditions = {
        "always": True,
        "lm_head_in_ckpt": lm_head_stored,
        "q_lora_rank": config.get("q_lora_rank") is not None,
        "q_lora_rank is null": config.get("q_lora_rank") is None,
        "noaux_tc": config.get("topk_method", "noaux_tc") == "noaux_tc",
        "index_n_heads": "index_n_heads" in config,
        "attention_bias": config.get("attention_bias", False),
        "use_qk_norm": config.get("use_qk_norm", False),
    }
    for row in TEMPLATES[config["architectures"][0]]:
        if not conditions[row.get("when", "always")]:
            continue
        shape = tuple(_size(text, sizes) for text in row["shape"])
        experts = sizes["E"] if "{e}" in row["name"] else 1
        low = len(shape) == 2 and row["role"] not in _HIGH
        for layer in range(every) if "{l}" in row["name"] else [0]:
            if "{l}" not in row["name"] or _has(row, layer, layers, config):
                yield row["name"].replace("{l}", str(layer)), experts, shape, low


def totals(config: Config, lm_head_stored: bool) -> tuple[int, int]:
    """Stored tensors and stored elements of a checkpoint, block scales counted where it is FP8."""
    fp8 = "quantization_config" in config
    tensors = elements = 0
    for _, experts, shape, low in expanded(config, lm_head_stored):
        tensors += experts
        elements += experts * prod(shape)
        if fp8 and low:
            tensors += experts
            elements += experts * prod(ceil(size / 128) for size in shape)
    return tensors, elements


def _has(row: Row, layer: int, layers: int, config: Config) -> bool:
    if layer >= layers:
        return row.get("layers") != "dense"
    return {None: True, "all": True, "indexer_full": True, "mtp": False}.get(
        row.get("layers"), _is_dense(layer, config) == (row.get("layers") == "dense")
    )


def _is_dense(layer: int, config: Config) -> bool:
    if layer in config.get("mlp_only_layers", []):
        return True
    if (layer + 1) % config.get("decoder_sparse_step", 1):
        return True
    return bool(layer < config.get("first_k_dense_replace", 0))


def _size(text: str, sizes: dict[str, int]) -> int:
    """A shape expression: products and sums of symbols, at most one pair of parentheses."""
    inner = re.sub(r"\(([^()]*)\)", lambda found: str(_sum(found[1], sizes)), text)
    return _sum(inner, sizes)


def _sum(text: str, sizes: dict[str, int]) -> int:
    return sum(prod(sizes.get(word) or int(word) for word in term.split("*")) for term in text.split("+"))
