"""Megatron's own reading of its per-module YAML: ordered matchers, and recipes with its defaults and checks.

Free is what Megatron ignores: comments but for the digest, keys beside `configs` and `matchers`, further keys of a
matcher, matchers that are not enabled or stand behind one that takes everything, configs that no matcher names, and
labels and configs' names themselves.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from precc.backend import malformed
from precc.records import record
from precc_te.versions import Engine

TYPE_KEY = "transformer_engine_config_type"
_FP8 = ("tensorwise", "mxfp8", "blockwise", "custom")
_FP4 = ("nvfp4", "custom")
_DEFAULTS: dict[str, Any] = {
    "fp8_quantization_recipe": None,
    "fp4_quantization_recipe": None,
    "custom_recipe_factory": None,
    "fp8_format": "e4m3",
    "override_quantized_autocast": True,
    "override_nonquantized_autocast": False,
    "tp_only_amax_red": False,
    "fp8_param": False,
    "fp4_param": False,
}


@record
class Recipe:
    """One recipe of a config. `kind` is `bf16`, a recipe's name, or `custom` with the path of its factory."""

    kind: str
    factory: str
    hybrid: bool
    over_quantized: bool
    over_unquantized: bool


@record
class Rule:
    """One enabled matcher: its label, its pattern and the recipes for training and evaluation."""

    label: str
    pattern: str
    config: str
    training: Recipe
    evaluation: Recipe


@record
class RecipeFile:
    """One YAML: its path, and its enabled matchers in their order."""

    path: str
    rules: tuple[Rule, ...]

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        return tuple(rule.pattern for rule in self.rules)

    @cached_property
    def _tests(self) -> tuple[re.Pattern[str], ...]:
        """What `fnmatch.fnmatchcase`, by which Megatron matches, makes of each pattern."""
        return tuple(re.compile(fnmatch.translate(pattern)) for pattern in self.patterns)

    def match(self, module: str) -> Rule | None:
        """The first rule whose pattern matches the whole path of a module."""
        pairs = zip(self.rules, self._tests, strict=True)
        return next((rule for rule, test in pairs if test.match(module)), None)


def read_recipes(path: str, text: str, engine: Engine) -> RecipeFile:
    """This reads one YAML as Megatron does. Raises Unsupported (P502) for what Megatron rejects, now or later."""
    import yaml

    try:
        content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as problem:
        raise malformed(path, f"no YAML: {problem}") from None
    if not isinstance(content, dict):
        raise malformed(path, "no mapping with `configs` and `matchers`")
    configs = _mapping(path, content, "configs")
    matchers = _mapping(path, content, "matchers")
    reader = _Reader(path, engine)
    return RecipeFile(path, tuple(reader.rules(matchers, configs)))


def _mapping(path: str, content: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = content.get(key) or {}
    if not isinstance(found, dict):
        raise malformed(path, f"`{key}` is no mapping")
    return found


class _Reader:
    def __init__(self, path: str, engine: Engine) -> None:
        self._path = path
        self._engine = engine

    def rules(self, matchers: dict[str, Any], configs: dict[str, Any]) -> Iterator[Rule]:
        for label, matcher in matchers.items():
            if not isinstance(matcher, dict):
                raise malformed(self._path, f"matcher `{label}` is no mapping")
            enabled = matcher.get("enabled", False)
            if not isinstance(enabled, bool):
                raise malformed(self._path, f"matcher `{label}` is neither enabled nor not: {enabled}")
            if not enabled:
                continue  # as in Megatron: a matcher that does not say `enabled: true` is none
            if matcher.get("type") != "glob":
                raise malformed(self._path, f"matcher `{label}` is of type {matcher.get('type')}; there is only glob")
            pattern, config = matcher.get("pattern"), matcher.get("config")
            if not isinstance(pattern, str) or not isinstance(config, str):
                raise malformed(self._path, f"matcher `{label}` has no pattern or no config")
            if config not in configs:
                raise malformed(self._path, f"matcher `{label}` names the config `{config}`, which does not exist")
            yield Rule(label, pattern, config, *self._recipes(config, configs[config]))

    def _recipes(self, name: str, config: Any) -> tuple[Recipe, Recipe]:
        if not isinstance(config, dict) or config.get(TYPE_KEY) != "TEQuantizationParams":
            raise malformed(self._path, f"config `{name}` is not of type TEQuantizationParams")
        if set(config) - {TYPE_KEY, "training_recipe", "evaluation_recipe"} or "training_recipe" not in config:
            raise malformed(self._path, f"config `{name}` has no training recipe, or a key that Megatron rejects")
        training = self._recipe(name, config["training_recipe"])
        if "evaluation_recipe" not in config:
            return training, training
        return training, self._recipe(name, config["evaluation_recipe"])

    def _recipe(self, name: str, said: Any) -> Recipe:
        if not isinstance(said, dict):
            raise malformed(self._path, f"a recipe of config `{name}` is no mapping")
        for key in said:
            if key not in self._engine.megatron.recipe_fields:
                version = self._engine.megatron.version
                raise malformed(self._path, f"config `{name}`: Megatron-Core {version} knows no field `{key}`")
        fields = {**_DEFAULTS, **said}
        self._check_values(name, fields)
        eight, four = fields["fp8_quantization_recipe"], fields["fp4_quantization_recipe"]
        kind = eight or four or "bf16"
        return Recipe(
            kind=kind,
            factory=fields["custom_recipe_factory"] if kind == "custom" else "",
            hybrid=fields["fp8_format"] == "hybrid" and eight in ("tensorwise", "mxfp8", "blockwise"),
            over_quantized=fields["override_quantized_autocast"],
            over_unquantized=fields["override_nonquantized_autocast"],
        )

    def _check_values(self, name: str, fields: dict[str, Any]) -> None:
        eight, four = fields["fp8_quantization_recipe"], fields["fp4_quantization_recipe"]
        where = f"config `{name}`: "
        if eight is not None and four is not None:
            raise malformed(self._path, where + "an FP8 and an FP4 recipe exclude each other")
        for value, known in ((eight, _FP8), (four, _FP4)):
            if value is not None and value not in known:
                raise malformed(self._path, where + f"there is no recipe `{value}`")
        if "custom" in (eight, four) and not isinstance(fields["custom_recipe_factory"], str):
            raise malformed(self._path, where + "a custom recipe wants a `custom_recipe_factory`")
        if fields["fp8_format"] not in ("e4m3", "hybrid"):
            raise malformed(self._path, where + f"there is no FP8 format `{fields['fp8_format']}`")
        for switch, default in _DEFAULTS.items():
            if isinstance(default, bool) and not isinstance(fields[switch], bool):
                raise malformed(self._path, where + f"`{switch}` is neither true nor false")
        if fields["tp_only_amax_red"]:
            raise malformed(self._path, where + "maxima are taken over tensor-parallel ranks only; precc never asks so")
        if fields["fp8_param"] or fields["fp4_param"]:
            raise malformed(self._path, where + "parameter gather is on; the contract's weights are kept in BF16")
