"""From the config's words to one of SGLang's config classes: the detection, its traps, and `--quantization`."""

from __future__ import annotations

from typing import Any

from precc.backend import Unsupported
from precc.diagnostics import error
from precc.records import record
from precc_sglang.paths import CONFIG_PATH, LEGACY_PATH, SERVER_PATH
from precc_sglang.reading.files import Files
from precc_sglang.refusal import unreadable
from precc_sglang.versions import Release

COMPATIBLE: dict[str, tuple[str, ...]] = {
    "modelopt_fp8": ("modelopt",),
    "modelopt_fp4": ("modelopt", "fp8"),
    "modelopt_mixed": ("modelopt",),
    "nvfp4_online": ("fp8", "modelopt_fp8"),
}
"""What `--quantization` may say against the method that the config declares."""

FP4_OVER_FP8 = frozenset({("modelopt_fp4", "fp8"), ("nvfp4_online", "modelopt_fp8")})
"""Of these, what not every version allows."""

ONLINE = frozenset({"fp8", "mxfp8", "modelopt_fp4", "nvfp4_online"})
"""The methods that quantize a checkpoint without a config while loading it; `modelopt_fp4` an FP8 one too."""


@record
class Route:
    """The method in force (empty for none), the object that its config class reads, and the file that it is in."""

    method: str
    config: dict[str, Any]
    path: str


def route(files: Files, release: Release) -> Route:
    """This follows the detection to a method. Raises Unsupported where the engine would refuse to start."""
    declared, config, path = _declared(files, release)
    asked = str(files.arguments.get("quantization") or "").lower()
    if declared is None:
        if asked in ONLINE:
            return Route(f"{asked} online", {}, SERVER_PATH)
        if asked:
            raise unreadable(f"{SERVER_PATH} asks for {asked}, and {CONFIG_PATH} holds no config for it")
        return Route("", {}, CONFIG_PATH)
    if asked == "modelopt" and declared.startswith("modelopt"):
        asked = declared
    if asked and asked != declared and not _compatible(asked, declared, release):
        raise Unsupported(
            error(
                "P502",
                f"SGLang refuses to start: {path} declares {declared}, {SERVER_PATH} asks for {asked}",
                help="compile again; the two belong together",
            )
        )
    method = asked or declared
    if method == "modelopt_fp4" and declared == "fp8":
        return Route(f"{method} online", config, path)
    if method == "modelopt_mixed" and _incomplete(config):
        if files.legacy is None:
            raise unreadable(f"{CONFIG_PATH} lacks `quantized_layers` or a KV cache key, and {LEGACY_PATH} is missing")
        return Route(method, _section(files.legacy), LEGACY_PATH)
    return Route(method, config, path)


def _compatible(asked: str, declared: str, release: Release) -> bool:
    return declared in COMPATIBLE.get(asked, ()) and (release.fp4_over_fp8 or (asked, declared) not in FP4_OVER_FP8)


def _declared(files: Files, release: Release) -> tuple[str | None, dict[str, Any], str]:
    """The method that the files declare after ModelOpt's algorithms are translated."""
    if files.config is not None:
        method = files.config.get("quant_method")
        if method not in (None, "modelopt"):
            return str(method).lower(), files.config, CONFIG_PATH
        return (*_translated(_section(files.config), str(method or ""), release), CONFIG_PATH)
    if files.legacy is not None:
        return (*_translated(_section(files.legacy), "", release), LEGACY_PATH)
    return None, {}, CONFIG_PATH


def _section(config: dict[str, Any]) -> dict[str, Any]:
    nested = config.get("quantization")
    return nested if isinstance(nested, dict) else config


def _translated(section: dict[str, Any], method: str, release: Release) -> tuple[str | None, dict[str, Any]]:
    algo = section.get("quant_algo")
    if algo == "MIXED_PRECISION":
        layers = section.get("quantized_layers") or {}
        algos = {str(layer.get("quant_algo", "")).upper() for layer in layers.values() if isinstance(layer, dict)}
        return ("modelopt_mixed" if algos & {"NVFP4", "W4A16_NVFP4"} else "w4afp8"), section
    if algo == "MXFP8" and not release.algorithm_parts:
        listed = section.get("exclude_modules", section.get("ignore"))
        return "mxfp8", {**section, "activation_scheme": "dynamic", "modules_to_not_convert": listed}
    if algo and "FP4" in algo:
        return "modelopt_fp4", section
    if algo and ("FP8" in algo if release.algorithm_parts else algo == "FP8"):
        return "modelopt_fp8", section
    return method or None, section


def _incomplete(config: dict[str, Any]) -> bool:
    has_cache = "kv_cache_quant_algo" in config or "kv_cache_scheme" in config
    return "quantized_layers" not in config or not has_cache
