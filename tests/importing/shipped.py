"""The quantization configs that were published with checkpoints, on the models they are for.

`tests/data/shipped_policies.json` has 66 of them, lists of names collapsed: `model.layers.{}.mlp.gate: 92` stands for
92 entries. They are opened again on the graph: a template stands for the layers that have such a module; where it could
be others, `LAYERS` says which, from what the checkpoint stores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from precc.graph.catalogue import catalogue
from precc.graph.model import EXPERT, ModelGraph
from precc.graph.reading import read_model
from precc.importing.reading import Document, Source

_DATA = Path(__file__).parents[1] / "data" / "shipped_policies.json"

MODELS = {
    "MiniMaxAI--MiniMax-M2.5": "minimax-m2.5",
    "MiniMaxAI--MiniMax-M2.7": "minimax-m2.7",
    "Qwen--Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen--Qwen3-30B-A3B-FP8": "qwen3-30b-a3b",
    "Qwen--Qwen3-32B-FP8-Static-PerTensor": "qwen3-32b",
    "Qwen--Qwen3-32B-FP8": "qwen3-32b",
    "XiaomiMiMo--MiMo-V2-Flash": "mimo-v2-flash",
    "deepseek-ai--DeepSeek-R1": "deepseek-r1",
    "deepseek-ai--DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai--DeepSeek-V3": "deepseek-v3",
    "deepseek-ai--DeepSeek-V4-Flash": "deepseek-v4-flash",
    "deepseek-ai--DeepSeek-V4-Pro": "deepseek-v4-pro",
    "nvidia--DeepSeek-V4-Flash-NVFP4": "deepseek-v4-flash",
    "nvidia--DeepSeek-V4-Pro-NVFP4": "deepseek-v4-pro",
    "sgl-project--DeepSeek-V4-Flash-FP8": "deepseek-v4-flash",
    "sgl-project--DeepSeek-V4-Pro-FP8": "deepseek-v4-pro",
    "moonshotai--Kimi-K2-Instruct": "kimi-k2",
    "moonshotai--Kimi-K2.5": "kimi-k2.5",
    "moonshotai--Kimi-K3": "kimi-k3",
    "nvidia--DeepSeek-V3.1-NVFP4": "deepseek-v3",
    "nvidia--DeepSeek-V3.2-NVFP4": "deepseek-v3.2",
    "nvidia--GLM-5-NVFP4": "glm-5",
    "nvidia--GLM-5.1-NVFP4": "glm-5",
    "nvidia--GLM-5.2-NVFP4": "glm-5.2",
    "nvidia--Gemma-4-26B-A4B-NVFP4": "gemma-4-26b-a4b",
    "nvidia--Gemma-4-31B-IT-NVFP4": "gemma-4-31b",
    "nvidia--Kimi-K2.5-NVFP4": "kimi-k2.5",
    "nvidia--Kimi-K2.6-NVFP4": "kimi-k2.5",
    "nvidia--Kimi-K2.7-Code-NVFP4": "kimi-k2.5",
    "nvidia--Llama-3.1-70B-Instruct-FP8": "llama-3.1-70b",
    "nvidia--MiniMax-M2.5-NVFP4": "minimax-m2.5",
    "nvidia--MiniMax-M2.7-NVFP4": "minimax-m2.7",
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": "nemotron-3-nano-30b-a3b",
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": "nemotron-3-super-120b-a12b",
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": "nemotron-3-super-120b-a12b",
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8": "nemotron-3-ultra-550b-a55b",
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": "nemotron-3-ultra-550b-a55b",
    "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": "nemotron-3.5-lightning-30b-a3b",
    "nvidia--MiniMax-M3-NVFP4": "minimax-m3",
    "nvidia--Qwen3-235B-A22B-NVFP4": "qwen3-235b-a22b",
    "nvidia--Qwen3.5-122B-A10B-NVFP4": "qwen3.5-122b-a10b",
    "nvidia--Qwen3.5-397B-A17B-NVFP4": "qwen3.5-397b-a17b",
    "nvidia--Qwen3.6-27B-NVFP4": "qwen3.5-27b",
    "nvidia--Qwen3.6-35B-A3B-NVFP4": "qwen3.5-35b-a3b",
    "openai--gpt-oss-120b": "gpt-oss-120b-bf16",
    "openai--gpt-oss-20b": "gpt-oss-20b-bf16",
    "stepfun-ai--Step-3.7-Flash-FP8": "step-3.7-flash",
    "zai-org--GLM-5-FP8": "glm-5",
    "zai-org--GLM-5.1-FP8": "glm-5",
    "zai-org--GLM-5.2-FP8": "glm-5.2",
}
"""Checkpoint → the model of the catalogue that has its tensors: those of GLM-5.1, DeepSeek-V3.1, Kimi-K2.6 and K2.7,
and Qwen3.6 are those of GLM-5, DeepSeek-V3, Kimi-K2.5 and Qwen3.5."""

UNKNOWN: dict[str, str] = {}
"""Checkpoints whose model has no graph here, each with the reason."""

LAYERS: dict[tuple[str, str], tuple[int, ...]] = {
    ("nvidia--DeepSeek-V3.1-NVFP4", "model.layers.{}*"): (61,),
    ("nvidia--DeepSeek-V3.2-NVFP4", "model.layers.{}*"): (61,),
    ("nvidia--GLM-5-NVFP4", "model.layers.{}*"): (78,),
    ("nvidia--GLM-5-NVFP4", "model.layers.{}.self_attn.o_proj"): tuple(range(79)),
    ("nvidia--GLM-5.1-NVFP4", "model.layers.{}*"): (0, 78),
    ("nvidia--GLM-5.1-NVFP4", "model.layers.{}.*"): (1, 2),
    ("nvidia--GLM-5.2-NVFP4", "model.layers.{}*"): (0, 78),
    ("nvidia--GLM-5.2-NVFP4", "model.layers.{}.*"): (1, 2),
    ("nvidia--Kimi-K2.6-NVFP4", "language_model.model.layers.{}*"): (0,),
    ("nvidia--Kimi-K2.6-NVFP4", "language_model.model.layers.{}.self_attn*"): tuple(range(1, 61)),
    ("nvidia--Kimi-K2.7-Code-NVFP4", "language_model.model.layers.{}*"): (0,),
    ("nvidia--Kimi-K2.7-Code-NVFP4", "language_model.model.layers.{}.self_attn*"): tuple(range(1, 61)),
    ("nvidia--GLM-5.1-NVFP4", "model.layers.{}.self_attn*"): tuple(range(3, 78)),
    ("nvidia--GLM-5.2-NVFP4", "model.layers.{}.self_attn*"): tuple(range(3, 78)),
    ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "backbone.layers.{}.mixer.in_proj"): (4, 11, 18, 25, 32, 41),
    ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "backbone.layers.{}.mixer.out_proj"): (4, 11, 18, 25, 32, 41),
    ("nvidia--Qwen3.5-122B-A10B-NVFP4", "mtp.layers.{}*"): (0,),
    ("nvidia--Qwen3.5-397B-A17B-NVFP4", "mtp.layers.{}*"): (0,),
    ("nvidia--Qwen3.6-27B-NVFP4", "mtp.layers.{}*"): (0,),
    ("nvidia--Qwen3.6-35B-A3B-NVFP4", "mtp.layers.{}*"): (0,),
}
"""The layers of templates that several layers would fit: the dense ones, and the draft's."""

_LISTS = ("modules_to_not_convert", "ignore", "exclude_modules", "quantized_layers")


@cache
def published() -> dict[str, dict[str, Any]]:
    """All files, by name (`zai-org--GLM-5-FP8_config.json`)."""
    found: dict[str, dict[str, Any]] = json.loads(_DATA.read_text())["policies"]
    return found


def checkpoint_of(file: str) -> str:
    """The checkpoint of a file."""
    return file.removesuffix(".json").removesuffix("_config").removesuffix("_hf_quant")


def model_of(file: str) -> str | None:
    """The catalogued model of a file; None where there is none."""
    name = MODELS.get(checkpoint_of(file))
    return name if name in catalogue() else None


def opened(file: str) -> dict[str, Any]:
    """One file's content, its lists of names opened on its model."""
    name = model_of(file)
    assert name is not None
    graph, said = read_model(name), dict(published()[file])
    for key in _LISTS:
        templates = said.pop(f"{key}_templates", None)
        if templates is not None:
            names = [
                one for text, count in templates.items() for one in _names(checkpoint_of(file), text, count, graph)
            ]
            said[key] = dict(map(_pair, names)) if key == "quantized_layers" else names
    return said


def _pair(text: str) -> tuple[str, dict[str, Any]]:
    module, _, algorithm = text.partition(" -> ")
    return module, {"quant_algo": algorithm}


def _names(checkpoint: str, text: str, count: int, graph: ModelGraph) -> Iterator[str]:
    if "{}" not in text:
        assert count == 1, text
        yield text
        return
    if text.count("{}") == 2:  # an entry for each expert of each layer
        layered = text.replace("{}", "\0", 1).replace("{}", EXPERT).replace("\0", "{}")
        for name in _names(checkpoint, layered, count // graph.expert_count, graph):
            yield from (name.replace(EXPERT, str(expert)) for expert in range(graph.expert_count))
        return
    chosen = LAYERS.get((checkpoint, text)) or _layers(text, count, graph)
    if len(chosen) == count + graph.mtp_layers:  # the draft's layer has an entry of its own
        chosen = chosen[:count]
    assert len(chosen) == count, (checkpoint, text, count, len(chosen))
    yield from (text.replace("{}", str(layer)) for layer in chosen)


def _layers(text: str, count: int, graph: ModelGraph) -> tuple[int, ...]:
    """The layers that have such a module; the first ones where none has it, for an entry that is dead."""
    head, tail = text.partition(" -> ")[0].rstrip("*").split("{}")
    every = range(graph.layers + graph.mtp_layers)
    modules = {".".join(tensor.path) for tensor in graph.tensors}
    names = {name for module in modules for name in _below(module)}
    having = tuple(layer for layer in every if f"{head}{layer}{tail}" in names)
    if having:
        return having
    parent = tail.rpartition(".")[0]
    return tuple(layer for layer in every if f"{head}{layer}{parent}" in names)[:count]


def _below(module: str) -> Iterator[str]:
    words = module.split(".")
    yield from (".".join(words[:stop]) for stop in range(1, len(words) + 1))


def source_of(*files: str) -> Source:
    """The files of one checkpoint as a folder would have them."""
    return Source("checkpoint", tuple(sorted(map(_document, files), key=lambda document: document.name)), True)


def _document(file: str) -> Document:
    said = opened(file)
    if file.endswith("_hf_quant_config.json"):
        return Document("checkpoint/hf_quant_config.json", "hf_quant_config.json", "", {"quantization": said})
    return Document("checkpoint/config.json", "config.json", "", {"quantization_config": said})
