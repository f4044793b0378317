"""Corruptions of `sglang/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .edits import (
    Artifacts,
    Change,
    Mutation,
    Place,
    added,
    each_dropped,
    each_word,
    environment,
    found,
    in_json,
    in_lines,
    one_added,
    one_contrary,
    one_forgotten,
    one_of_both,
    one_unset,
    removed,
    replaced,
)

CONFIG = "sglang/quantization_config.json"
LEGACY = "sglang/hf_quant_config.json"
SERVER = "sglang/server.yaml"
SHELL = "sglang/env.sh"
LISTED = "sglang/env.json"

LISTS = ("modules_to_not_convert", "ignore")
"""The key of the exclusions, by method."""

_IN_LEGACY = {"ignore": "exclude_modules"}
_SHARED = ("ignore", "quant_algo", "group_size", "quantized_layers", "kv_cache_quant_algo")


def in_config(change: Change) -> Mutation:
    """A change of the quantization config, made in ModelOpt's own file too where there is one."""

    def mutation(artifacts: Artifacts) -> Iterator[Artifacts]:
        for made in in_json(CONFIG, change)(artifacts):
            yield {**made, **_legacy(artifacts, json.loads(made[CONFIG]))}

    return mutation


def _legacy(artifacts: Artifacts, config: dict[str, Any]) -> dict[str, str]:
    if LEGACY not in artifacts:
        return {}
    legacy = json.loads(artifacts[LEGACY])
    section = legacy["quantization"]
    for key in _SHARED:
        there = _IN_LEGACY.get(key, key)
        if key in config:
            section[there] = config[key]
        else:
            section.pop(there, None)
    return {LEGACY: json.dumps(legacy, indent=2) + "\n"}


# --- what is excluded --------------------------------------------------------------------------------


def _list_of(content: Any) -> tuple[str, list[str]]:
    key = next((key for key in LISTS if content.get(key) is not None), "ignore")
    return key, content.get(key) or []


def _fewer(content: Any) -> Iterator[Any]:
    key, entries = _list_of(content)
    yield from (removed(content, (key, number)) for number in range(len(entries)))


def _more(*entries: str) -> Change:
    def change(content: Any) -> Iterator[Any]:
        key, held = _list_of(content)
        yield from (replaced(content, (key,), [*held, entry]) for entry in entries if entry not in held)

    return change


def _renumbered(content: Any) -> Iterator[Any]:
    key, entries = _list_of(content)
    for number, entry in enumerate(entries):
        if ".3." in entry or entry.endswith(".3"):
            yield replaced(content, (key, number), entry.replace(".3", ".1", 1))


_PROJECTIONS = (
    "model.layers.0.self_attn.o_proj",
    "model.layers.1.self_attn.q_proj",
    "model.layers.1.self_attn.qkv_proj",
    "model.layers.1.mlp.experts",
    "model.layers.1.mlp.experts.0.gate_proj",
    "model.layers.0.mlp.down_proj",
)
_GLOBS = ("*", "model.layers.0.*", "*self_attn*", "re:.*mlp.*", "mlp", "layers.1")


# --- the mix, and the words of a config --------------------------------------------------------------


def _layers(content: Any) -> dict[str, Any]:
    layers: dict[str, Any] = content.get("quantized_layers") or {}
    return layers


def _key_dropped(content: Any) -> Iterator[Any]:
    yield from (removed(content, ("quantized_layers", name)) for name in _layers(content))


def _key_renamed(content: Any) -> Iterator[Any]:
    layers = _layers(content)
    for name in layers:
        head, _, last = name.rpartition(".")
        for other in (f"{head}.{last}x", name.replace("model.layers", "layers"), name.replace(".1.", ".3.")):
            if other != name:
                renamed = {other if key == name else key: value for key, value in layers.items()}
                yield replaced(content, ("quantized_layers",), renamed)


def _key_added(content: Any) -> Iterator[Any]:
    layers = _layers(content)
    if layers:
        for name in ("model.layers.3.self_attn.o_proj", "lm_head", "model.layers.1.mlp.gate"):
            more = {**layers, name: {"quant_algo": "MXFP8", "group_size": 32}}
            yield replaced(content, ("quantized_layers",), more)


def _key_flipped(content: Any) -> Iterator[Any]:
    for name, facts in _layers(content).items():
        for algo, size in (("NVFP4", 16), ("MXFP8", 32), ("FP8", None), ("INT4", None)):
            if algo != facts["quant_algo"]:
                made = {"quant_algo": algo, **({"group_size": size} if size else {})}
                yield replaced(content, ("quantized_layers", name), made)


def _word(place: Place, *values: Any) -> Change:
    """Other values of one word, where the config has it."""

    def change(content: Any) -> Iterator[Any]:
        held = found(content, place)
        if held is not None:
            yield from (replaced(content, place, value) for value in values if value != held)
            yield removed(content, place)

    return change


def _cache(content: Any) -> Iterator[Any]:
    for key in ("kv_cache_quant_algo", "kv_cache_scheme"):
        if key in content:
            value = {"num_bits": 8, "type": "float", "dynamic": False}
            yield replaced(content, (key,), "FP8" if key == "kv_cache_quant_algo" else value)


_GROUP: Place = ("config_groups", "group_0")

_WEIGHTS: dict[str, tuple[Any, ...]] = {
    "num_bits": (8,),
    "group_size": (128,),
    "strategy": ("channel",),
    "symmetric": (False,),
    "type": ("float",),
}


def _scheme(content: Any) -> Iterator[Any]:
    for word, values in _WEIGHTS.items():
        yield from _word((*_GROUP, "weights", word), *values)(content)
    if found(content, _GROUP) is not None:
        inputs = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}
        yield replaced(content, (*_GROUP, "input_activations"), inputs)


def _without(path: str) -> Mutation:
    """A file is missing."""

    def mutation(artifacts: Artifacts) -> Iterator[Artifacts]:
        if path in artifacts:
            yield {name: text for name, text in artifacts.items() if name != path}

    return mutation


def _null(artifacts: Artifacts) -> Iterator[Artifacts]:
    if artifacts[CONFIG].strip() != "null":
        yield {path: text for path, text in artifacts.items() if path != LEGACY} | {CONFIG: "null\n"}


def _legacy_only(artifacts: Artifacts) -> Iterator[Artifacts]:
    for made in in_config(_key_dropped)(artifacts):
        if LEGACY in made:
            yield {**artifacts, LEGACY: made[LEGACY]}


# --- arguments and environment -----------------------------------------------------------------------

_ARGUMENTS = {
    "dtype: bfloat16": "dtype: float16",
    "kv-cache-dtype: bf16": "kv-cache-dtype: fp8_e4m3",
    "quantization: mxfp8": "quantization: fp8",
    "quantization: modelopt_mixed": "quantization: modelopt_fp4",
    "quantization: modelopt_fp4": "quantization: modelopt_mixed",
    "quantization: compressed-tensors": "quantization: fp8",
    "moe-runner-backend: flashinfer_trtllm_routed": "moe-runner-backend: triton",
    "disable-shared-experts-fusion: true": "disable-shared-experts-fusion: false",
}

_FURTHER = (
    "enable-fp32-lm-head: true",
    "quantization-param-path: scales.json",
    "speculative-draft-model-quantization: fp8",
    "a-new-argument: 1",
)

_STALE = {
    "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION": "1",
    "FLASHINFER_NVFP4_4OVER6": "1",
    "SGLANG_FP8_IGNORED_LAYERS": "model.layers.0",
    "SGLANG_FORCE_MXFP8_BLOCK_CONVERT": "1",
    "SGLANG_NVFP4_CKPT_FP8_GEMM_IN_ATTN": "1",
    "SGLANG_FORCE_FP8_MARLIN": "1",
    "SGLANG_QUANT_ALLOW_DOWNCASTING": "1",
}


def _in_environment(change: Change) -> Mutation:
    return environment(SHELL, LISTED, change)


MUTATIONS: dict[str, Mutation] = {
    "an exclusion is removed": in_config(_fewer),
    "an exclusion is for another layer": in_config(_renumbered),
    "one projection more is excluded": in_config(_more(*_PROJECTIONS)),
    "a glob is excluded": in_config(_more(*_GLOBS)),
    "a key of the mix is dropped": in_config(_key_dropped),
    "a key of the mix is renamed": in_config(_key_renamed),
    "a key of the mix is added": in_config(_key_added),
    "a key of the mix is flipped": in_config(_key_flipped),
    "another `quant_method`": in_config(_word(("quant_method",), "fp8", "mxfp8", "modelopt", "w4afp8")),
    "another `quant_algo`": in_config(_word(("quant_algo",), "NVFP4", "FP8", "MIXED_PRECISION")),
    "another `group_size`": in_config(_word(("group_size",), 32, 128)),
    "another `weight_block_size`": in_config(_word(("weight_block_size",), [128, 128], [1, 64])),
    "another `activation_scheme`": in_config(_word(("activation_scheme",), "static")),
    "another `scale_fmt`": in_config(_word(("scale_fmt",), "fp32")),
    "another scheme of a group": in_config(_scheme),
    "other targets of a group": in_config(_word((*_GROUP, "targets"), ["FusedMoE"], ["re:.*o_proj"])),
    "another `format` of a group": in_config(_word(("format",), "float-quantized")),
    "the config declares an FP8 KV cache": in_config(_cache),
    "no config": _null,
    "ModelOpt's own file differs": _legacy_only,
    "ModelOpt's own file is missing": _without(LEGACY),
    "an argument is removed": in_lines(SERVER, each_dropped),
    "another argument": in_lines(SERVER, each_word(_ARGUMENTS)),
    "a further argument": in_lines(SERVER, added(*_FURTHER)),
    "a variable is unset": _in_environment(one_unset),
    "a variable is contradicted": _in_environment(one_contrary({"MAE": "MSE", "MSE": "MAE"})),
    "a variable is set that is unset": _in_environment(one_added(_STALE)),
    "a variable is neither set nor unset": _in_environment(one_forgotten),
    "the two files of the environment differ": one_of_both(SHELL, LISTED),
}
