"""Small safetensors checkpoints, written byte by byte."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from precc.graph import ModelGraph
from precc.graph.headers import locate_tensors

Entry = tuple[str, tuple[int, ...]]

_STORED = {"bf16": "BF16", "fp16": "F16", "fp32": "F32"}
_FP8 = {"weight": "F8_E4M3", "weight_scale_inv": "F32"}
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "I32": 4}

SMALL: Mapping[str, int] = {
    "vocab_size": 160,
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 384,
    "moe_intermediate_size": 192,
    "num_experts": 6,
    "n_routed_experts": 6,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": 128,
    "kv_lora_rank": 96,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "index_n_heads": 4,
    "index_head_dim": 32,
    "index_skip_topk_offset": 1,
    "full_attention_interval": 2,
    "shared_expert_intermediate_size": 192,
    "out_hidden_size": 256,
}


def small(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same model with few and narrow layers; what is null stays null. So are the sections of a wrapper."""
    return {k: _small(k, v) for k, v in config.items()}


def _small(key: str, value: Any) -> Any:
    if isinstance(value, dict) and key.endswith(("text_config", "vision_config")):
        return small(value)
    return SMALL[key] if key in SMALL and value is not None else value


def entries(graph: ModelGraph) -> dict[str, Entry]:
    """The stored tensors of a graph: dtype and shape by name."""
    return dict(_entries(graph))


def _entries(graph: ModelGraph) -> Iterator[tuple[str, Entry]]:
    for tensor in graph.tensors:
        for module, name in zip(tensor.modules(), tensor.names(), strict=True):
            if tensor.form.is_quantized:
                yield from ((f"{module}.{word}", (_FP8[word], shape)) for word, shape in tensor.stored())
            else:
                yield name, (_STORED[tensor.dtype], tensor.shape)


def header_of(tensors: Mapping[str, Entry]) -> tuple[dict[str, Any], int]:
    """The header of one file that holds these tensors back to back, and the bytes they take."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + _BYTES.get(dtype, 1) * prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    return header, end


def write_file(path: Path, header: object, weights: int) -> None:
    """One safetensors file with that header and room for that many bytes of weights."""
    write_bytes(path, json.dumps(header).encode(), weights)


def write_bytes(path: Path, header: bytes, weights: int = 0) -> None:
    """One file whose header is any bytes."""
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + weights)


def names_by_file(folder: Path) -> dict[str, str]:
    """What the index of a folder has to say: the file of each tensor, by the headers."""
    return {name: file.name for file in sorted(folder.glob("*.safetensors")) for name in locate_tensors(file)}


def write_checkpoint(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Entry], shards: int = 3) -> Path:
    """A checkpoint folder: `config.json` and the tensors dealt out over the shards."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = list(tensors)
    for shard in range(shards):
        part = {name: tensors[name] for name in names[shard::shards]}
        write_file(folder / f"model-{shard + 1:05}-of-{shards:05}.safetensors", *header_of(part))
    return folder
