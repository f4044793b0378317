"""A second, independent expansion of the published tensor templates, to compare the families' tables with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
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
    return entry["config"], entry.get("lm_head_stored", not entry["config"].get("tie_word_embeddings", False))


def symbols(config: Config) -> dict[str, int]:
    """The sizes that the templates' shapes are written in."""
    get = config.get
    heads = config["num_attention_heads"]
    head = get("head_dim") or config["hidden_size"] // heads
    expert = get("moe_intermediate_size") or config["intermediate_size"]
    found = {
        "V": config["vocab_size"],
        "H": config["hidden_size"],
        "I": get("intermediate_size"),
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
        "S": get("shared_expert_intermediate_size") or (get("n_shared_experts") or 0) * expert,
        "IH": get("index_n_heads"),
        "ID": get("index_head_dim"),
        "LK": get("linear_num_key_heads", 0) * get("linear_key_head_dim", 0),
        "LV": get("linear_num_value_heads", 0) * get("linear_value_head_dim", 0),
        "LNV": get("linear_num_value_heads"),
        "LVD": get("linear_value_head_dim"),
        "CK": get("linear_conv_kernel_dim"),
        **{symbol: get("vision_config", {}).get(key) for symbol, key in _VISION.items()},
    }
    return {name: value for name, value in found.items() if value is not None}


_VISION = {
    "VH": "hidden_size",
    "VI": "intermediate_size",
    "VO": "out_hidden_size",
    "VM": "spatial_merge_size",
    "VN": "num_position_embeddings",
    "VC": "in_channels",
    "VT": "temporal_patch_size",
    "VP": "patch_size",
}


def expanded(config: Config, lm_head_stored: bool) -> Iterator[tuple[str, int, tuple[int, ...], bool]]:
    """Every tensor: its name (`{e}` kept), how many experts have it, its shape, whether FP8 stores it."""
    config = {**config.get("text_config", {}), **config}
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
        low = row["role"].startswith("expert.") if len(shape) == 3 else len(shape) == 2 and row["role"] not in _HIGH
        name = row["name"].replace("{m}", "{l}")
        for layer in _repeated(row, every, config) if "{l}" in name else [0]:
            if "{l}" not in name or row.get("layers") in _BESIDE or _has(row, layer, layers, config):
                yield name.replace("{l}", str(layer)), experts, shape, low


_BESIDE = ("mtp1", "vision", "deepstack")
"""What repeats beside the decoder."""


def _repeated(row: Row, layers: int, config: Config) -> range:
    """How often a row repeats: once a decoder layer, an MTP layer below `mtp`, a block of the tower, a merger."""
    tower = config.get("vision_config", {})
    blocks, mergers = tower.get("depth", 0), len(tower.get("deepstack_visual_indexes", ()))
    return range({"mtp1": 1, "vision": blocks, "deepstack": mergers}.get(row.get("layers", ""), layers))


def totals(config: Config, lm_head_stored: bool) -> tuple[int, int]:
    """Stored tensors and stored elements of a checkpoint, those of scales counted where it is quantized."""
    quantization = config.get("quantization_config", {})
    stored = _STORED.get(quantization.get("quant_algo") or quantization.get("quant_method"), _plain)
    kept = quantization.get("ignore", ())
    tensors = elements = 0
    for name, experts, shape, low in expanded(config, lm_head_stored):
        is_kept = any(fnmatch(name, f"{entry}.weight") or fnmatch(name, entry) for entry in kept)
        sizes = stored(*shape) if low and not is_kept else [prod(shape)]
        tensors += experts * len(sizes)
        elements += experts * sum(sizes)
    return tensors, elements


def _plain(*shape: int) -> list[int]:
    return [prod(shape)]


def _fp8(rows: int, columns: int) -> list[int]:
    return [rows * columns, ceil(rows / 128) * ceil(columns / 128)]


def _nvfp4(rows: int, columns: int) -> list[int]:
    """Two codes a byte, a scale for sixteen, an outer scale, and one for the input."""
    return [rows * columns // 2, rows * columns // 16, 1, 1]


def _mxfp4(*shape: int) -> list[int]:
    """Experts alone: two codes a byte, and a scale for 32."""
    return [prod(shape) // 2, prod(shape) // 32] if len(shape) == 3 else [prod(shape)]


_STORED = {"fp8": _fp8, "NVFP4": _nvfp4, "mxfp4": _mxfp4}


def _has(row: Row, layer: int, layers: int, config: Config) -> bool:
    if layer >= layers:
        return row.get("layers") != "dense"
    if row.get("layers") == "indexer_full":
        return _has_indexer(layer, config)
    if row.get("layers") in ("full", "linear"):
        return ((layer + 1) % config["full_attention_interval"] == 0) == (row["layers"] == "full")
    return {None: True, "all": True, "mtp": False}.get(
        row.get("layers"), _is_dense(layer, config) == (row.get("layers") == "dense")
    )


def _has_indexer(layer: int, config: Config) -> bool:
    """As transformers' `GlmMoeDsaConfig` derives it."""
    offset = config.get("index_skip_topk_offset", 2)
    return bool(max(layer - offset + 1, 0) % config.get("index_topk_freq", 1) == 0)


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
