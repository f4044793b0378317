"""Matchers and recipes are read here as Megatron's own code reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from te.engines import MEGATRONS, Judges
from te.live import match
from te.support import INNER, MTP, MXFP8, TWO_BACKWARDS, TWO_LINES, compiled, emitted

from precc.backend import Unsupported
from precc_te.modules import modules_of
from precc_te.names import paths
from precc_te.reading.numbers import representatives, tells_apart
from precc_te.reading.recipes import Recipe, RecipeFile, read_recipes
from precc_te.upstream.process import Worker
from precc_te.versions import MEGATRON, Engine

WORDS = ("decoder", "mtp", "layers", "mlp", "experts", "local_experts", "linear_fc1", "1", "10", "21", "0")
PIECES = (*WORDS, *".*?01", "[12]", "[!0]", "linear_", "fc1")
names = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(".".join)
patterns = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)


@pytest.fixture(scope="module", params=MEGATRONS)
def megatron(request: pytest.FixtureRequest, judges: Judges) -> Megatron:
    """One version's own code, and the reader's rules for it."""
    return Megatron(judges(request.param).worker, Engine(MEGATRON[request.param], "2.20.2"))


@dataclass(frozen=True)
class Megatron:
    """Both sides of every test here."""

    worker: Worker
    engine: Engine

    def match(self, path: Path, names: list[str]) -> list[Any]:
        """The config and the parsed recipe that its own code chooses for each name."""
        found = self.worker.ask(match, path=str(path), names=names)
        assert isinstance(found, list)
        return found

    def read(self, path: Path) -> RecipeFile:
        """The reader's view of the same file."""
        return read_recipes(str(path), path.read_text(), self.engine)


@pytest.mark.parametrize(
    "policy, model",
    [(TWO_LINES, "deepseek-v3"), (MXFP8, "qwen3-30b-a3b"), (TWO_BACKWARDS, "qwen3-30b-a3b"), (INNER, "llama-3.1-8b"),
     (MTP, "glm-4.5")],
    ids=["two lines", "mxfp8", "two backward modes", "single layers", "mtp"],
)  # fmt: skip
def test_megatron_parses_and_matches_emitted_recipes_as_the_reader_does(
    policy: str, model: str, megatron: Megatron, tmp_path: Path
) -> None:
    """For every path of a real model, grouped and sequential, also of modules that no recipe can reach."""
    contract = compiled(policy, model, f"megatron_core={megatron.engine.megatron.version}")
    path = tmp_path / "te_precision.yaml"
    path.write_text(emitted(contract)["te/te_precision.yaml"])
    inner = megatron.engine.megatron.mtp_inner
    asked = [
        f"{head}7{tail}" if tail else head
        for module in modules_of(contract).precisions
        for head, tail in paths(module, range(module.layer or 0, (module.layer or 0) + 1), inner)
    ]
    asked += ["embedding.word_embeddings", "output_layer", "decoder.layers.3.mlp.router", "mtp.layers.0.eh_proj"]
    read = megatron.read(path)
    for name, answer in zip(asked, megatron.match(path, asked), strict=True):
        rule = read.match(name)
        assert rule is not None
        assert answer[0] == rule.config
        assert as_read(answer[1]) == rule.training


def as_read(recipe: dict[str, Any]) -> Recipe:
    """Megatron's parsed recipe in the reader's type: a factory and a format say nothing where no recipe takes them."""
    kind = recipe["fp8_quantization_recipe"] or recipe["fp4_quantization_recipe"] or "bf16"
    return Recipe(
        kind,
        recipe["custom_recipe_factory"] if kind == "custom" else "",
        recipe["fp8_format"] == "hybrid" and recipe["fp8_quantization_recipe"] in ("mxfp8", "blockwise", "tensorwise"),
        recipe["override_quantized_autocast"],
        recipe["override_nonquantized_autocast"],
    )


@settings(max_examples=25)
@given(st.lists(patterns, min_size=1, max_size=40), st.lists(names, min_size=1, max_size=60), st.data())
def test_any_matchers_choose_what_megatron_chooses(
    tmp_path_factory: pytest.TempPathFactory,
    megatron: Megatron,
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
    read = megatron.read(path)
    chosen = [None if (rule := read.match(name)) is None else rule.config for name in asked]
    assert chosen == [None if answer is None else answer[0] for answer in megatron.match(path, asked)]


FIELDS: dict[str, tuple[Any, ...]] = {
    "fp8_quantization_recipe": (None, "mxfp8", "blockwise", "tensorwise", "delayed", "custom", "nvfp4"),
    "fp4_quantization_recipe": (None, "nvfp4", "custom", "mxfp8"),
    "custom_recipe_factory": (None, "precc_te.factories.mxfp8_native"),
    "fp8_format": ("e4m3", "hybrid", "e5m2"),
    "override_quantized_autocast": (True, False),
    "override_nonquantized_autocast": (True, False),
    "tp_only_amax_red": (True, False),
    "fp8_param": (True, False),
    "backward_override": ("dequantized",),
}
recipes = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in FIELDS.items()})


@settings(max_examples=60)
@given(training=recipes, evaluation=st.none() | recipes)
def test_what_the_reader_accepts_megatron_reads_alike(
    tmp_path_factory: pytest.TempPathFactory,
    megatron: Megatron,
    training: dict[str, Any],
    evaluation: dict[str, Any] | None,
) -> None:
    """Any fields with any values: what Megatron rejects the reader rejects, and what both take they take as one."""
    config = {"transformer_engine_config_type": "TEQuantizationParams", "training_recipe": training}
    config |= {} if evaluation is None else {"evaluation_recipe": evaluation}
    matcher = {"type": "glob", "enabled": True, "pattern": "*", "config": "c"}
    path = tmp_path_factory.mktemp("any") / "recipes.yaml"
    path.write_text(json.dumps({"configs": {"c": config}, "matchers": {"m": matcher}}))
    (answer,) = megatron.match(path, ["x"])
    try:
        rule = megatron.read(path).match("x")
    except Unsupported:
        return
    assert rule is not None
    assert as_read(answer[1]) == rule.training


BROKEN: dict[str, dict[str, Any]] = {
    "unknown field": {"training_recipe": {"fp8_quantization_recipe": "mxfp8", "backward_override": "dequantized"}},
    "parameter gather": {"training_recipe": {"fp8_quantization_recipe": "mxfp8", "fp8_param": True}},
    "two formats": {"training_recipe": {"fp8_quantization_recipe": "mxfp8", "fp4_quantization_recipe": "nvfp4"}},
    "custom without factory": {"training_recipe": {"fp8_quantization_recipe": "custom"}},
    "delayed": {"training_recipe": {"fp8_quantization_recipe": "delayed"}},
    "no recipe": {},
    "null recipe": {"training_recipe": None},
    "further key": {"training_recipe": {}, "note": 1},
}


def test_a_field_of_a_newer_megatron_is_read_by_it_only(megatron: Megatron, tmp_path: Path) -> None:
    """`fp8_param` came with 0.19: stated as off it changes nothing there, and 0.16 rejects the file."""
    config = {"transformer_engine_config_type": "TEQuantizationParams", "training_recipe": {"fp8_param": False}}
    matcher = {"type": "glob", "enabled": True, "pattern": "*", "config": "c"}
    path = tmp_path / "recipes.yaml"
    path.write_text(json.dumps({"configs": {"c": config}, "matchers": {"m": matcher}}))
    (answer,) = megatron.match(path, ["x"])
    if megatron.engine.megatron.version == "0.16.1":
        assert answer == "ValueError"
        with pytest.raises(Unsupported):
            megatron.read(path)
    else:
        assert as_read(answer[1]) == megatron.read(path).rules[0].training


@pytest.mark.parametrize("broken", BROKEN)
def test_what_megatron_rejects_the_reader_rejects(broken: str, megatron: Megatron, tmp_path: Path) -> None:
    """A config that raises in Megatron is a finding P502 here, and the other way round for a good one."""
    config = {"transformer_engine_config_type": "TEQuantizationParams", **BROKEN[broken]}
    matcher = {"type": "glob", "enabled": True, "pattern": "*", "config": "c"}
    path = tmp_path / "recipes.yaml"
    path.write_text(json.dumps({"configs": {"c": config}, "matchers": {"m": matcher}}))
    (answer,) = megatron.match(path, ["x"])
    if broken == "parameter gather" and megatron.engine.megatron.version != "0.16.1":
        assert answer[1]["fp8_param"] is True  # Megatron has that field since 0.19; no contract asks for it
    else:
        assert answer in ("ValueError", "TypeError", "AssertionError")
    with pytest.raises(Unsupported) as refusal:
        megatron.read(path)
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
