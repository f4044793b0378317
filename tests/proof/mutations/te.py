"""Corruptions of `te/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import yaml

from .edits import (
    Artifacts,
    Change,
    Mutation,
    added,
    each_dropped,
    each_word,
    environment,
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

SCRIPT = "te/with_stage_recipe.sh"
ARGUMENTS = "te/megatron.args"
SHELL = "te/env.sh"
LISTED = "te/env.json"


def in_recipes(change: Change) -> Mutation:
    """A change of the per-module recipes: of the one file, or of each stage's."""

    def mutation(artifacts: Artifacts) -> Iterator[Artifacts]:
        for path in _recipe_files(artifacts):
            lines = artifacts[path].splitlines(keepends=True)
            content = yaml.safe_load(artifacts[path])
            for made in change(content):
                yield {**artifacts, path: "".join(_laid_out(made, content, lines))}

    return mutation


def _laid_out(made: Any, before: Any, lines: list[str]) -> Iterator[str]:
    """One config or matcher a line, as they are emitted; a line that says the same is left as it was."""
    yield from (line for line in lines if line.startswith("#"))
    for key, held in made.items():
        yield next(line for line in lines if line.startswith(f"{key}:"))
        for name, value in held.items():
            same = before[key].get(name) == value
            kept = [line for line in lines if same and line.startswith(f"  {name}: ")]
            yield kept[0] if kept else f"  {name}: {json.dumps(value)}\n"


def _recipe_files(artifacts: Artifacts) -> list[str]:
    return [path for path in artifacts if path.startswith("te/te_precision.")]


# --- matchers ----------------------------------------------------------------------------------------


def _dropped(content: Any) -> Iterator[Any]:
    yield from (removed(content, ("matchers", label)) for label in list(content["matchers"])[:-1])


def _without_default(content: Any) -> Iterator[Any]:
    yield removed(content, ("matchers", list(content["matchers"])[-1]))


def _in_order(content: Any, labels: list[str]) -> Any:
    return replaced(content, ("matchers",), {label: content["matchers"][label] for label in labels})


def _swapped(content: Any) -> Iterator[Any]:
    labels = list(content["matchers"])
    for at, (one, other) in enumerate(pairwise(labels)):
        yield _in_order(content, [*labels[:at], other, one, *labels[at + 2 :]])


def _default_first(content: Any) -> Iterator[Any]:
    *labels, default = content["matchers"]
    if labels:
        yield _in_order(content, [default, *labels])


def _doubled(content: Any) -> Iterator[Any]:
    """A copy of each matcher in front of it, pointing at another config."""
    for matcher in list(content["matchers"].values())[:-1]:
        other = next(name for name in content["configs"] if name != matcher["config"])
        yield replaced(content, ("matchers",), {"again": {**matcher, "config": other}, **content["matchers"]})


def _said(key: str, *values: Any) -> Change:
    """Another value of one key of every matcher but the default."""

    def change(content: Any) -> Iterator[Any]:
        for label in list(content["matchers"])[:-1]:
            yield from (replaced(content, ("matchers", label, key), value) for value in values)

    return change


def _unsaid(key: str) -> Change:
    """One key of every matcher left out."""
    return lambda content: (removed(content, ("matchers", label, key)) for label in content["matchers"])


def _component(content: Any) -> Iterator[Any]:
    """Every component of every pattern, with a letter too many."""
    for label, matcher in list(content["matchers"].items())[:-1]:
        words = matcher["pattern"].split(".")
        for at, word in enumerate(words):
            changed = ".".join([*words[:at], "7" if word == "*" else f"{word}x", *words[at + 1 :]])
            yield replaced(content, ("matchers", label, "pattern"), changed)


def _component_lost(content: Any) -> Iterator[Any]:
    for label, matcher in list(content["matchers"].items())[:-1]:
        words = matcher["pattern"].split(".")
        for at in range(len(words)):
            yield replaced(content, ("matchers", label, "pattern"), ".".join([*words[:at], *words[at + 1 :]]))


def _wider(content: Any) -> Iterator[Any]:
    for label, matcher in list(content["matchers"].items())[:-1]:
        head, _, last = matcher["pattern"].rpartition(".")
        for pattern in (f"{head}.*", f"decoder.*{last[-1]}", "decoder.*", "*"):
            yield replaced(content, ("matchers", label, "pattern"), pattern)


def _other_config(content: Any) -> Iterator[Any]:
    for label, matcher in content["matchers"].items():
        others = [name for name in content["configs"] if name != matcher["config"]]
        yield from (replaced(content, ("matchers", label, "config"), name) for name in (*others, "nowhere"))


# --- configs -----------------------------------------------------------------------------------------


def _no_config(content: Any) -> Iterator[Any]:
    yield from (removed(content, ("configs", name)) for name in content["configs"])


def _recipes(content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, config in content["configs"].items():
        yield name, config["training_recipe"]


def _recipe_with(**fields: Any) -> Change:
    """Every recipe that quantizes, with further or other fields; None leaves one out."""

    def change(content: Any) -> Iterator[Any]:
        for name, recipe in _recipes(content):
            if recipe:
                made = {key: value for key, value in {**recipe, **fields}.items() if value is not None}
                yield replaced(content, ("configs", name, "training_recipe"), made)

    return change


def _emptied(content: Any) -> Iterator[Any]:
    for name, recipe in _recipes(content):
        if recipe:
            yield replaced(content, ("configs", name, "training_recipe"), {})


def _other_recipe(content: Any) -> Iterator[Any]:
    others = {"mxfp8": "blockwise", "blockwise": "mxfp8", "nvfp4": "nvfp5", "tensorwise": "mxfp8"}
    for name, recipe in _recipes(content):
        for key in ("fp8_quantization_recipe", "fp4_quantization_recipe"):
            if recipe.get(key) in others:
                yield replaced(content, ("configs", name, "training_recipe", key), others[recipe[key]])


def _other_width(content: Any) -> Iterator[Any]:
    for name, recipe in _recipes(content):
        place = ("configs", name, "training_recipe")
        if recipe.get("fp4_quantization_recipe") == "nvfp4":
            yield replaced(content, place, {"fp8_quantization_recipe": "mxfp8"})
        elif "fp8_quantization_recipe" in recipe:
            yield replaced(content, place, {"fp4_quantization_recipe": "nvfp4"})


def _factory(content: Any) -> Iterator[Any]:
    for name, recipe in _recipes(content):
        factory = recipe.get("custom_recipe_factory")
        if factory:
            place = ("configs", name, "training_recipe", "custom_recipe_factory")
            yield from (replaced(content, place, f"precc_te.factories.{other}") for other in _FACTORIES)


_FACTORIES = ("mxfp8", "nvfp4_dequantized", "nowhere")


def _yields(content: Any) -> Iterator[Any]:
    for name, _ in _recipes(content):
        yield replaced(content, ("configs", name, "training_recipe", "override_quantized_autocast"), False)


def _evaluated(content: Any) -> Iterator[Any]:
    for name, recipe in _recipes(content):
        if recipe:
            yield replaced(content, ("configs", name, "evaluation_recipe"), {})


def _other_type(content: Any) -> Iterator[Any]:
    for name, _ in _recipes(content):
        yield replaced(content, ("configs", name, "transformer_engine_config_type"), "TEParams")


# --- arguments and environment -----------------------------------------------------------------------


def _counts(lines: list[str]) -> Iterator[list[str]]:
    for at, line in enumerate(lines):
        name, _, value = line.partition(" ")
        if name.startswith("--num-layers-at-"):
            for count in {int(value) + 1, abs(int(value) - 1)}:
                yield [*lines[:at], f"{name} {count}", *lines[at + 1 :]]


def _forbidden(content: Any) -> Iterator[Any]:
    yield from (
        removed(content, ("forbidden_arguments", number)) for number in range(len(content["forbidden_arguments"]))
    )


_WORDS = {
    "--fp8-format e4m3": "--fp8-format hybrid",
    "--fp8-recipe mxfp8": "--fp8-recipe blockwise",
    "--fp8-recipe blockwise": "--fp8-recipe mxfp8",
    "--fp4-recipe nvfp4": "--fp4-recipe nvfp5",
    "--fp4-format e2m1": "--fp8-format e4m3",
    "--transformer-impl transformer_engine": "--transformer-impl local",
    "--bf16": "--fp16",
    "te_precision.yaml": "other.yaml",
}

_MORE = (
    "--fp8-param-gather",
    "--fp4-param-gather",
    "--fp8-format hybrid",
    "--fp8-recipe tensorwise",
    "--num-layers-at-start-in-bf16 2",
    "--first-last-layers-bf16",
)

_CONTRARY = {
    "high_precision": "dequantized",
    "dequantized": "high_precision",
    "none": "all",
    "all": "none",
    "weights": "activations",
    "MAE": "MSE",
    "MSE": "MAE",
}

_STALE = {
    "NVTE_BACKWARD_OVERRIDE": "dequantized",
    "NVTE_NVFP4_DISABLE_RHT": "1",
    "NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING": "1",
    "NVTE_NVFP4_DISABLE_2D_QUANTIZATION": "1",
    "NVTE_NVFP4_ROW_SCALED_ACTIVATION": "1",
    "NVTE_NVFP4_4OVER6": "all",
    "NVTE_FP8_BLOCK_SCALING_FP32_SCALES": "1",
    "NVTE_USE_FAST_MATH": "1",
    "NVTE_DPA_FP8_RECIPE": "Float8CurrentScaling",
}


def _in_environment(change: Change) -> Mutation:
    return environment(SHELL, LISTED, change)


def _stages_swapped(artifacts: Artifacts) -> Iterator[Artifacts]:
    for one, other in pairwise(_recipe_files(artifacts)):
        yield {**artifacts, one: artifacts[other], other: artifacts[one]}


def _one_for_all(artifacts: Artifacts) -> Iterator[Artifacts]:
    """The recipe of a single stage for every stage."""
    files = _recipe_files(artifacts)
    if len(files) > 1:
        yield from ({**artifacts, **dict.fromkeys(files, artifacts[path])} for path in files)


def _no_recipes(artifacts: Artifacts) -> Iterator[Artifacts]:
    for missing in _recipe_files(artifacts):
        yield {path: text for path, text in artifacts.items() if path != missing}


MUTATIONS: dict[str, Mutation] = {
    "a matcher is dropped": in_recipes(_dropped),
    "the default matcher is dropped": in_recipes(_without_default),
    "two matchers are swapped": in_recipes(_swapped),
    "the default matcher comes first": in_recipes(_default_first),
    "a matcher for another config in front": in_recipes(_doubled),
    "`enabled` is removed": in_recipes(_unsaid("enabled")),
    "`enabled` is false": in_recipes(_said("enabled", False)),
    "a matcher has no pattern": in_recipes(_unsaid("pattern")),
    "a matcher of another type": in_recipes(_said("type", "regex")),
    "a pattern changed by one component": in_recipes(_component),
    "a pattern one component shorter": in_recipes(_component_lost),
    "a wider pattern": in_recipes(_wider),
    "a matcher points at another config": in_recipes(_other_config),
    "a config is dropped": in_recipes(_no_config),
    "a config of another type": in_recipes(_other_type),
    "a recipe is emptied": in_recipes(_emptied),
    "a recipe of another name": in_recipes(_other_recipe),
    "FP8 for FP4, or FP4 for FP8": in_recipes(_other_width),
    "another recipe factory": in_recipes(_factory),
    "gradients in E5M2": in_recipes(_recipe_with(fp8_format="hybrid")),
    "quantized in BF16 layers": in_recipes(_recipe_with(override_nonquantized_autocast=True)),
    "not quantized in MTP layers": in_recipes(_recipe_with(override_nonquantized_autocast=None)),
    "a recipe that yields to the engine's": in_recipes(_yields),
    "another recipe for evaluation": in_recipes(_evaluated),
    "a field that does not exist": in_recipes(_recipe_with(format="e4m3")),
    "a recipe file is missing": _no_recipes,
    "the recipes of two stages are swapped": _stages_swapped,
    "one stage's recipe for all": _one_for_all,
    "the wrapper for other stages": in_lines(SCRIPT, each_word({"stages=2": "stages=1", "stage$stage": "stage0"})),
    "a word of `megatron.args` is removed": in_lines(ARGUMENTS, each_dropped),
    "a count of first or last layers": in_lines(ARGUMENTS, _counts),
    "another format or recipe for all": in_lines(ARGUMENTS, each_word(_WORDS)),
    "a further argument": in_lines(ARGUMENTS, added(*_MORE)),
    "a variable is unset": _in_environment(one_unset),
    "a variable is contradicted": _in_environment(one_contrary(_CONTRARY)),
    "a variable is set that is unset": _in_environment(one_added(_STALE)),
    "a variable is neither set nor unset": _in_environment(one_forgotten),
    "the two files of the environment differ": one_of_both(SHELL, LISTED),
    "a forbidden argument is allowed": in_json(LISTED, _forbidden),
}
