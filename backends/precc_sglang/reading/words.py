"""The words of a quantization config: which keys each method's file may have, and the values that have one meaning.

A key that precc does not know may change what is served (`moe_quant_algo`, `linear_fp8_config`…), and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from precc_sglang.config import DIGEST_KEY, EXPERTS_KEY, GROUP_SIZES, NVFP4_KEY
from precc_sglang.grammar import algorithm
from precc_sglang.reading.routing import Route
from precc_sglang.refusal import unreadable

_LISTS = frozenset({"ignore", "exclude_modules", "modules_to_not_convert"})
_CACHES = frozenset({"kv_cache_quant_algo", "kv_cache_scheme"})
_FP8 = frozenset({"fmt", "activation_scheme", "weight_block_size", "scale_fmt", "ignored_layers", *_LISTS, *_CACHES})
_EXPERTS = frozenset({EXPERTS_KEY, NVFP4_KEY, "group_size", "quantized_layers"})
_MODELOPT = frozenset({"group_size", *_LISTS, *_CACHES})
_COMPRESSED = frozenset(
    {"format", "quantization_status", "config_groups", "ignore", "kv_cache_scheme", "global_compression_ratio"}
)

KEYS: Mapping[str, frozenset[str]] = {
    "fp8": _FP8,
    "mxfp8": _FP8,
    "modelopt_fp8": _MODELOPT,
    "modelopt_fp4": _MODELOPT,
    "modelopt_mixed": _MODELOPT | {"quantized_layers"},
    "compressed-tensors": _COMPRESSED,
    "mxfp4": frozenset({"modules_to_not_convert"}),
}
"""The keys of each method beside its name, its algorithm and the digest."""

ONLY: Mapping[str, tuple[object, ...]] = {
    "fmt": ("e4m3",),
    "scale_fmt": ("ue8m0",),
    "activation_scheme": ("dynamic",),
    "quantization_status": ("compressed",),
    "group_size": (16,),
    "global_compression_ratio": (None,),
}
"""Keys with one value that precc reads; where it is another, SGLang reads another format or does not start."""

_GROUP = frozenset({"targets", "format", "weights", "input_activations", "output_activations"})


def check_words(found: Route, knows_experts: bool = False) -> None:
    """This refuses keys and values that precc does not write and does not read (P502). Raises Unsupported.

    `knows_experts` is a class whose `fp8` config may say what its experts are in.
    """
    problem = next(_problems(found, knows_experts), None)
    if problem is not None:
        raise unreadable(f"{found.path} {problem}", "compile again")


def _problems(found: Route, knows_experts: bool) -> Iterator[str]:
    config = found.config
    known = KEYS.get(found.method)
    if known is not None and knows_experts:
        known |= _EXPERTS
    if known is None:
        return
    for key, value in config.items():
        if key not in known and key not in ("quant_method", "quant_algo", DIGEST_KEY):
            yield f"has `{key}`, which may change what {found.method} serves"
        if value not in ONLY.get(key, (value,)):
            yield f"says `{key}: {value}`; precc reads {ONLY[key][0]} there"
    if found.method == "modelopt_mixed":
        yield from _layers(config.get("quantized_layers"))
    if found.method == "compressed-tensors":
        yield from _groups(config.get("config_groups"))


def _layers(layers: object) -> Iterator[str]:
    for name, facts in layers.items() if isinstance(layers, dict) else ():
        if not isinstance(facts, dict) or set(facts) - {"quant_algo", "group_size"}:
            yield f"says more of {name} than its `quant_algo` and `group_size`"
            continue
        size = GROUP_SIZES.get(algorithm(facts))
        if size is not None and facts.get("group_size", size) != size:
            yield f"says `group_size: {facts['group_size']}` of {name}; {algorithm(facts)} has {size}"


def _groups(groups: object) -> Iterator[str]:
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        yield "has no `config_groups`"
        return
    for name, group in groups.items():
        beyond = sorted(set(group) - _GROUP)
        if beyond or group.get("output_activations") is not None:
            yield f"says `{(*beyond, 'output_activations')[0]}` in {name}, which precc does not read"


def declared_cache(config: Mapping[str, Any]) -> str:
    """The KV cache that a config declares, in one key or two: `bf16`, `fp8`, or whatever else they say."""
    words = {
        "kv_cache_quant_algo": _algorithm_word(config.get("kv_cache_quant_algo")),
        "kv_cache_scheme": _scheme_word(config.get("kv_cache_scheme")),
    }
    return " and ".join(sorted({word for key, word in words.items() if key in config})) or "bf16"


def _algorithm_word(algo: object) -> str:
    return "bf16" if algo is None else "fp8" if str(algo).upper() == "FP8" else str(algo)


_FP8_SCHEME: Mapping[str, object] = {
    "num_bits": 8,
    "type": "float",
    "dynamic": False,
    "strategy": "tensor",
    "symmetric": True,
}


def _scheme_word(scheme: object) -> str:
    if scheme is None:
        return "bf16"
    if isinstance(scheme, str):
        return "fp8" if scheme.strip().upper() in ("FP8", "FLOAT8") else scheme
    return "fp8" if isinstance(scheme, dict) and {**_FP8_SCHEME, **scheme} == _FP8_SCHEME else str(scheme)
