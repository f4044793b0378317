"""The `quantization_config` of a contract, and the legacy file that ModelOpt's methods may read beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from precc.backend import Unsupported
from precc.contract import Contract
from precc.diagnostics import error
from precc.graph.model import natural
from precc_sglang.cover import DOTTED, MODELOPT, REGEX, Grammar, Inexpressible, cover
from precc_sglang.families import (
    FP8_CHANNEL,
    INT4,
    MXFP4_WEIGHTS,
    MXFP8,
    UNQUANTIZED,
    Family,
    is_mxfp4,
    is_w4a4,
)
from precc_sglang.methods import HYBRID, MIXED, NONE, Choice, quantized_families
from precc_sglang.names import Kind, Module
from precc_sglang.refusal import engine
from precc_sglang.server import block_scales

DIGEST_KEY = "precc_contract"

Config = dict[str, Any]


def quantization_config(contract: Contract, choice: Choice) -> Config | None:
    """This is what stands under `quantization_config` in `config.json`; None where that key must be absent."""
    if choice.method == NONE:
        return None
    build = _BUILDERS[choice.method.argument]
    return {**build(contract, choice), DIGEST_KEY: contract.digest}


def legacy_config(config: Config | None) -> Config | None:
    """This is `hf_quant_config.json` for the same decisions; None for the methods that have no such file."""
    if config is None or "quant_algo" not in config or NVFP4_KEY in config:
        return None
    keys = ("quant_algo", "kv_cache_quant_algo", "group_size", "quantized_layers")
    section = {key: config[key] for key in keys if key in config}
    section["exclude_modules"] = config["ignore"]
    return {
        "producer": {"name": "modelopt"},
        "quantization": section,
        DIGEST_KEY: config[DIGEST_KEY],
    }


# --- one builder a method ----------------------------------------------------------------------------


def _fp8(contract: Contract, choice: Choice) -> Config:
    families = quantized_families(contract.entries)
    block = MXFP8 not in families
    pow2 = not block or block_scales(contract) == ["pow2"]
    return {
        "quant_method": choice.method.quant_method,
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128] if block else [1, 32],
        **({"scale_fmt": "ue8m0"} if pow2 else {}),
        "modules_to_not_convert": _exclusions(contract, choice, DOTTED),
        "kv_cache_quant_algo": _cache_algo(contract),
        **(_experts(contract, choice) if choice.built.fp8_beside_fp4 else {}),
    }


EXPERTS_KEY, NVFP4_KEY = "routed_experts_quant_method", "moe_quant_algo"
"""What a class that may have experts in four bits beside FP8 is told of them: MXFP4 or not, NVFP4."""

IN_MXFP4 = "mxfp4"
"""The one word of the first key that SGLang looks for."""


def _experts(contract: Contract, choice: Choice) -> Config:
    """What the routed experts are in: the first key keeps SGLang from guessing it, the others ask for NVFP4.

    An expert layer that is in NVFP4 is not in what the first key says.
    """
    method = IN_MXFP4 if any(map(is_mxfp4, quantized_families(contract.entries))) else "fp8"
    if choice.method != HYBRID:
        return {EXPERTS_KEY: method}
    modules = [(module, family) for module, family in choice.families() if module.kind is Kind.EXPERTS]
    kept = [module for module, family in modules if is_w4a4(family)]
    out = [module for module, family in modules if not is_w4a4(family)]
    return {
        EXPERTS_KEY: method,
        "quant_algo": HYBRID.quant_algo,
        NVFP4_KEY: "NVFP4",
        "group_size": GROUP_SIZES["NVFP4"],
        "ignore": _covered(contract, choice, out, kept, MODELOPT),
    }


def _modelopt(contract: Contract, choice: Choice) -> Config:
    four_bits = choice.method.quant_algo != "FP8"
    return {
        "quant_method": choice.method.quant_method,
        "quant_algo": choice.method.quant_algo,
        **({"group_size": 16} if four_bits else {}),
        "ignore": _exclusions(contract, choice, MODELOPT),
        **_modelopt_cache(contract),
    }


def _mixed(contract: Contract, choice: Choice) -> Config:
    """Every quantized module has its key, and what has none is unquantized; so nothing is ignored."""
    key = choice.built.key
    layers = {
        key(module.prefix): _algorithm(family) for module, family in choice.families() if family is not UNQUANTIZED
    }
    return {
        "quant_method": MIXED.quant_method,
        "quant_algo": MIXED.quant_algo,
        "quantized_layers": {prefix: layers[prefix] for prefix in sorted(layers, key=natural)},
        "ignore": [],
        **_modelopt_cache(contract),
    }


GROUP_SIZES = {"MXFP8": 32, "FP8_PB_WO": 128, "NVFP4": 16, "W4A16_NVFP4": 16}


def _algorithm(family: Family) -> Config:
    algo = family.algo or ""
    return {"quant_algo": algo, **({"group_size": GROUP_SIZES[algo]} if algo in GROUP_SIZES else {})}


def _mxfp4(contract: Contract, choice: Choice) -> Config:
    """SGLang reads no list here; for others its entries are patterns that a name begins with."""
    names = {name for module, family in choice.families() if family is UNQUANTIZED for name in module.shards}
    return {
        "quant_method": choice.method.quant_method,
        "modules_to_not_convert": sorted({re.sub(r"\.\d+\.", ".*.", name) for name in names}),
    }


def _compressed(contract: Contract, choice: Choice) -> Config:
    (family,) = quantized_families(contract.entries)
    form, weights, inputs = _COMPRESSED[family.name](family)
    return {
        "quant_method": choice.method.quant_method,
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": inputs,
                "output_activations": None,
            }
        },
        "ignore": _exclusions(contract, choice, REGEX),
        "kv_cache_scheme": _cache_scheme(contract, strategy="tensor", symmetric=True),
    }


def _channel(family: Family) -> tuple[str, Config, Config | None]:
    common = {"num_bits": 8, "type": "float", "symmetric": True}
    weights = {**common, "strategy": "channel", "dynamic": False}
    return "float-quantized", weights, {**common, "strategy": "token", "dynamic": True}


def _integers(family: Family) -> tuple[str, Config, Config | None]:
    weights = {
        "num_bits": 4,
        "type": "int",
        "symmetric": True,
        "strategy": "group",
        "group_size": family.group,
        "dynamic": False,
        "actorder": None,
    }
    return "pack-quantized", weights, None


def _floats(family: Family) -> tuple[str, Config, Config | None]:
    weights = {
        "num_bits": 4,
        "type": "float",
        "symmetric": True,
        "strategy": "group",
        "group_size": 32,
        "dynamic": False,
        "scale_dtype": "torch.uint8",
    }
    return "mxfp4-pack-quantized", weights, None


_COMPRESSED: dict[str, Callable[[Family], tuple[str, Config, Config | None]]] = {
    FP8_CHANNEL.name: _channel,
    INT4.name: _integers,
    MXFP4_WEIGHTS.name: _floats,
}

_BUILDERS: dict[str, Callable[[Contract, Choice], Config]] = {
    "mxfp8": _fp8,
    "fp8": _fp8,
    "modelopt_fp8": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _mixed,
    "compressed-tensors": _compressed,
    "mxfp4": _mxfp4,
}


# --- what they share ---------------------------------------------------------------------------------


def _exclusions(contract: Contract, choice: Choice, grammar: Grammar) -> list[str]:
    """The list of what stays unquantized.

    Besides the modules that ask, it names the GEMMs that never ask (the router, an LM head that the method cannot
    quantize): SGLang needs none of these, other readers of the same `config.json` do. Not those of a draft model.
    """
    named = [
        (module, family) for module, family in choice.families() if not (module.draft and module.kind is Kind.NEVER)
    ]
    out = [module for module, family in named if family is UNQUANTIZED]
    kept = [module for module, family in named if family is not UNQUANTIZED]
    if choice.built.drops_nvfp4_draft and choice.method.argument == "modelopt_fp4":
        out = [module for module in out if not module.draft or module.kind is Kind.HEAD]
    if choice.built.draft_head and choice.method.argument in HEADS_ASK:
        out.append(Module(choice.built.draft_head, Kind.HEAD, (choice.built.draft_head,), draft=True))
    return _covered(contract, choice, out, kept, grammar)


HEADS_ASK = ("modelopt_fp8", "modelopt_fp4")
"""The methods that quantize an LM head which is not listed."""


def _covered(contract: Contract, choice: Choice, out: list[Module], kept: list[Module], grammar: Grammar) -> list[str]:
    try:
        return cover(out, kept, grammar)
    except Inexpressible as missed:
        first = choice.modules[missed.module][0]
        raise Unsupported(
            error(
                "P701",
                f"{engine(contract)} cannot leave `{first.tensor.name}` out of quantization alone: every entry of a "
                f"`{choice.method.argument}` list that reaches it reaches quantized modules too",
                first.span,
                help="give the whole layer, or the same projection of every layer, one decision",
            )
        ) from None


def _cache_algo(contract: Contract) -> str | None:
    return "FP8" if contract.kv_cache == "fp8" else None


def _cache_scheme(contract: Contract, **more: Any) -> Config | None:
    if contract.kv_cache != "fp8":
        return None
    return {"num_bits": 8, "type": "float", "dynamic": False, **more}


def _modelopt_cache(contract: Contract) -> Config:
    return {"kv_cache_quant_algo": _cache_algo(contract), "kv_cache_scheme": _cache_scheme(contract)}
