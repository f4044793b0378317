"""Megatron's YAML, as the fork reads it: enabled glob matchers in order, each with a config of one type.

From `core/quantization/quant_config.py:100-170` and `core/extensions/transformer_engine.py:115-235` of `miles-main`.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any

from precc.backend import check_digest, malformed, named_contract
from precc_miles.emission import INLINE, RECIPES, TRAIN
from precc_miles.forms import FORMS
from precc_miles.trainer import Matcher, Recipe

_TYPE = ("transformer_engine_config_type", "TEQuantizationParams")
_RECIPES: Mapping[tuple[str, str], str] = {form.recipe: name for name, form in FORMS.items() if form.recipe[0]}
_KINDS = ("fp8_quantization_recipe", "fp4_quantization_recipe")
_SWITCHES = {"override_quantized_autocast": True, "override_nonquantized_autocast": False, "tp_only_amax_red": False}
_FIELDS = frozenset({*_KINDS, *_SWITCHES, "custom_recipe_factory", "fp8_format"})


def read_recipes(said: str, beside: str | None, digest: str) -> tuple[Matcher, ...]:
    """The matchers of `--te-precision-config-file`, whose text follows inline; `beside` is the same for reading.

    Raises Unsupported (P502) for what Megatron would not start with, or would run otherwise than a contract can.
    """
    if not said.startswith(INLINE):
        raise malformed(TRAIN, f"the recipes are named by a path, {said}, which every machine would have to have")
    try:
        text = b64decode(said.removeprefix(INLINE), validate=True).decode()
    except ValueError:
        raise malformed(TRAIN, "the inline recipes are not base64 of a text") from None
    if text != beside:
        raise malformed(RECIPES, "it is not the text that `--te-precision-config-file` holds")
    check_digest(RECIPES, named_contract(text), digest)
    return tuple(_matchers(_mapping(text)))


def _mapping(text: str) -> dict[str, Any]:
    import yaml

    try:
        found: Any = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        raise malformed(RECIPES, "it is no YAML") from None
    for key in ("configs", "matchers"):
        if not isinstance(found, dict) or not isinstance(found.get(key), dict):
            raise malformed(RECIPES, f"`{key}` is no mapping")
    return dict(found)


def _matchers(found: dict[str, Any]) -> Iterator[Matcher]:
    for label, matcher in found["matchers"].items():
        if not isinstance(matcher, dict):
            raise malformed(RECIPES, f"matcher `{label}` is no mapping")
        if not matcher.get("enabled", False):
            continue  # as in Megatron: a matcher that does not say `enabled: true` is none
        if matcher.get("type") != "glob" or not isinstance(matcher.get("pattern"), str):
            raise malformed(RECIPES, f"matcher `{label}` is no glob with a pattern")
        config = found["configs"].get(matcher.get("config"))
        if not isinstance(config, dict):
            raise malformed(RECIPES, f"matcher `{label}` names a config that does not exist")
        yield Matcher(str(label), matcher["pattern"], _recipe(str(matcher["config"]), config))


def _recipe(name: str, config: dict[str, Any]) -> Recipe:
    key, word = _TYPE
    said = config.get("training_recipe")
    if config.get(key) != word or set(config) != {key, "training_recipe"} or not isinstance(said, dict):
        raise malformed(RECIPES, f"config `{name}` is not of type {word} with one training recipe")
    unknown = sorted(set(said) - _FIELDS)
    if unknown:
        raise malformed(RECIPES, f"config `{name}`: this Megatron knows no field `{unknown[0]}`")
    switches = {switch: said.get(switch, default) for switch, default in _SWITCHES.items()}
    if not switches["override_quantized_autocast"] or switches["tp_only_amax_red"]:
        raise malformed(RECIPES, f"config `{name}` has a switch that no contract sets")
    if said.get("fp8_format", "e4m3") != "e4m3" or "custom_recipe_factory" in said:
        raise malformed(RECIPES, f"config `{name}` has another FP8 format, or a factory")
    kinds = [(kind, str(said[kind])) for kind in _KINDS if said.get(kind) is not None]
    if not kinds:
        return Recipe(None)
    if len(kinds) > 1 or kinds[0] not in _RECIPES:
        raise malformed(
            RECIPES, f"config `{name}` runs {' and '.join(word for _, word in kinds)}, which no contract does"
        )
    return Recipe(FORMS[_RECIPES[kinds[0]]], forced=switches["override_nonquantized_autocast"] is True)
