"""Matchers and recipes are read here as Megatron's own code reads them."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from te.support import INNER, MTP, MXFP8, TWO_BACKWARDS, TWO_LINES, compiled, emitted
from te.upstream_client import Upstream

from precc.backend import Unsupported
from precc_te.modules import modules_of
from precc_te.names import paths
from precc_te.reading.numbers import representatives, tells_apart
from precc_te.reading.recipes import Recipe, read_recipes
from precc_te.versions import MEGATRON, Engine

OLD = Engine(MEGATRON["0.16.1"], "2.20.2")

WORDS = ("decoder", "mtp", "layers", "mlp", "experts", "local_experts", "linear_fc1", "1", "10", "21", "0")
PIECES = (*WORDS, *".*?01", "[12]", "[!0]", "linear_", "fc1")
names = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(".".join)
patterns = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)


@pytest.mark.parametrize(
    "policy, model",
    [(TWO_LINES, "deepseek-v3"), (MXFP8, "qwen3-30b-a3b"), (TWO_BACKWARDS, "qwen3-30b-a3b"), (INNER, "llama-3.1-8b"),
     (MTP, "glm-4.5")],
    ids=["two lines", "mxfp8", "two backward modes", "single layers", "mtp"],
)  # fmt: skip
def test_megatron_parses_and_matches_emitted_recipes_as_the_reader_does(
    policy: str, model: str, upstream: Upstream, tmp_path: Path
) -> None:
    """For every path of a real model, grouped and sequential, also of modules that no recipe can reach."""
    contract = compiled(policy, model, "megatron_core=0.16.1")
    text = emitted(contract)["te/te_precision.yaml"]
    path = tmp_path / "te_precision.yaml"
    path.write_text(text)
    asked = [
        f"{head}7{tail}" if tail else head
        for module in modules_of(contract).precisions
        for head, tail in paths(module, range(module.layer or 0, (module.layer or 0) + 1), "transformer_layer")
    ]
    asked += ["embedding.word_embeddings", "output_layer", "decoder.layers.3.mlp.router", "mtp.layers.0.eh_proj"]
    read = read_recipes(str(path), text, OLD)
    for name, answer in zip(asked, upstream.ask("match", path=str(path), names=asked), strict=True):
        rule = read.match(name)
        assert rule is not None
        assert answer[0] == rule.config
        assert as_read(answer[1]) == rule.training


def as_read(recipe: dict[str, Any]) -> Recipe:
    """Megatron's parsed recipe in the reader's type."""
    kind = recipe["fp8_quantization_recipe"] or recipe["fp4_quantization_recipe"] or "bf16"
    return Recipe(
        kind,
        recipe["custom_recipe_factory"] or "",
        recipe["fp8_format"] == "hybrid",
        recipe["override_quantized_autocast"],
        recipe["override_nonquantized_autocast"],
    )


@settings(max_examples=8)
@given(st.lists(patterns, min_size=1, max_size=40), st.lists(names, min_size=1, max_size=60), st.data())
def test_any_matchers_choose_what_megatron_chooses(
    tmp_path_factory: pytest.TempPathFactory,
    upstream: Upstream,
    found: list[str],
    asked: list[str],
    data: st.DataObject,
) -> None:
    """Order, `enabled` left out, globs with classes: the first enabled match, or none."""
    config = {"transformer_engine_config_type": "TEQuantizationParams", "training_recipe": {}}
    matchers: dict[str, Any] = {}
    for number, pattern in enumerate(found):
        enabled = data.draw(st.sampled_from(({"enabled": True}, {"enabled": False}, {})))
        matchers[f"m{number}"] = {"type": "glob", "pattern": pattern, "config": f"c{number}", **enabled}
    content = {"configs": {f"c{number}": config for number in range(len(found))}, "matchers": matchers}
    path = tmp_path_factory.mktemp("any") / "recipes.yaml"
    path.write_text(json.dumps(content))
    read = read_recipes(str(path), path.read_text(), OLD)
    chosen = [None if (rule := read.match(name)) is None else rule.config for name in asked]
    answers = upstream.ask("match", path=str(path), names=asked)
    assert chosen == [None if answer is None else answer[0] for answer in answers]


BROKEN: dict[str, dict[str, Any]] = {
    "unknown field": {"training_recipe": {"fp8_quantization_recipe": "mxfp8", "backward_override": "dequantized"}},
    "field of a newer Megatron": {"training_recipe": {"fp8_quantization_recipe": "mxfp8", "fp8_param": False}},
    "two formats": {"training_recipe": {"fp8_quantization_recipe": "mxfp8", "fp4_quantization_recipe": "nvfp4"}},
    "custom without factory": {"training_recipe": {"fp8_quantization_recipe": "custom"}},
    "delayed": {"training_recipe": {"fp8_quantization_recipe": "delayed"}},
    "no recipe": {},
    "null recipe": {"training_recipe": None},
    "further key": {"training_recipe": {}, "note": 1},
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_megatron_rejects_the_reader_rejects(broken: str, upstream: Upstream, tmp_path: Path) -> None:
    """A config that raises in Megatron is a finding P502 here, and the other way round for a good one."""
    config = {"transformer_engine_config_type": "TEQuantizationParams", **BROKEN[broken]}
    matcher = {"type": "glob", "enabled": True, "pattern": "*", "config": "c"}
    path = tmp_path / "recipes.yaml"
    path.write_text(json.dumps({"configs": {"c": config}, "matchers": {"m": matcher}}))
    (answer,) = upstream.ask("match", path=str(path), names=["x"])
    assert answer in ("ValueError", "TypeError", "AssertionError")
    with pytest.raises(Unsupported) as refusal:
        read_recipes(str(path), path.read_text(), OLD)
    assert refusal.value.findings[0].code == "P502"


@given(patterns, names.map(lambda name: f"{name}."), st.sampled_from(("", ".linear_fc1", ".mlp")))
def test_numbers_that_stand_for_all_decide_as_all_do(pattern: str, head: str, tail: str) -> None:
    """What a pattern says of the representatives it says of every number."""
    numbers = range(120)
    answers = {fnmatchcase(f"{head}{number}{tail}", pattern) for number in numbers}
    shown = {fnmatchcase(f"{head}{number}{tail}", pattern) for number in representatives([pattern], head, numbers)}
    assert answers == shown


def test_a_layer_in_a_pattern_does_not_force_experts_apart() -> None:
    """The digits of another place cost nothing, however many experts there are; those of an expert do."""
    head = "decoder.layers.12.mlp.experts.local_experts."
    assert not tells_apart("decoder.layers.12.mlp.experts.*linear_fc1", head)
    assert not tells_apart("decoder.layers.3.*", head)
    assert tells_apart("*.local_experts.3.linear_fc1", head)
    assert tells_apart("decoder.layers.12.*4.linear_fc1", head)
    assert len(representatives(["decoder.layers.12.*"], head, range(10**9))) == 1
