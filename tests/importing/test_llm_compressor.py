"""llm-compressor recipes: compressed-tensors' own code gives every layer of the same names the same scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from importing.judging import linear_layers, module_names, presets, schemes, tools
from importing.support import SAMPLES, counts, decisions, imported, messages, model, reading, rules, written

from precc.graph.shrinking import shrink
from precc.importing.checkpoint import Section, is_convertible
from precc.importing.readers import llm_compressor
from precc.importing.readers.compressed_tensors import scheme_of
from precc.importing.reading import Unimportable

NEWEST = (
    *("qwen3-next-80b-a3b", "deepseek-v3", "nemotron-3-super-120b-a12b", "mimo-v2-flash", "minimax-m3"),
    *("gemma-4-26b-a4b", "deepseek-v4-flash"),
)
"""Models of the families whose names differ most."""


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[..., Any]]:
    """A worker with compressed-tensors."""
    with tools() as asked:
        yield asked


def recipe(*modifiers: dict[str, Any]) -> dict[str, Any]:
    """A recipe of one stage."""
    return {"quant_stage": {"quant_modifiers": {name: said for one in modifiers for name, said in one.items()}}}


def config_of(modifier: dict[str, Any], known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The config that compressed-tensors is given for a modifier, presets from its own table."""
    groups = modifier.get("config_groups")
    if groups is None:
        named = modifier["scheme"]
        named = named if isinstance(named, dict) else {named: modifier.get("targets", ["Linear"])}
        groups = {name: {**known[name.upper()], "targets": reached} for name, reached in named.items()}
    return {"config_groups": groups, "ignore": modifier.get("ignore", []), "quantization_status": "initialized"}


def spelled(scheme: dict[str, Any] | None) -> str:
    """The decision that a scheme of compressed-tensors is."""
    return "None" if scheme is None else str(scheme_of(Section("judge", {}), scheme))


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["llmc_non_uniform.yaml", "llmc_experts.yaml", "llmc_presets.yaml"])
@pytest.mark.parametrize("name", NEWEST)
def test_every_layer_has_the_scheme_that_compressed_tensors_gives_it(
    ask: Callable[..., Any], sample: str, name: str
) -> None:
    """Exact names, patterns and classes in groups of one modifier, on small models with the same names."""
    graph = shrink(model(name), layers=6).graph
    (modifier,) = yaml.safe_load((SAMPLES / sample).read_text())["quant_stage"]["quant_modifiers"].values()
    names = module_names(graph)
    served = {name for tensor in linear_layers(graph) if is_convertible(tensor) for name in tensor.modules()}
    named = {name.removeprefix("language_model.") if name.endswith("lm_head") else name: name for name in names}
    found_there = ask(schemes, list(named), config_of(modifier, ask(presets)))
    judged = {named[name]: scheme for name, scheme in found_there.items()}
    read = reading(SAMPLES / sample, graph)
    found = decisions(read)
    assert {layer: found[layer] for layer in served} == {layer: spelled(judged[layer]) for layer in served}
    is_beyond = any(scheme is not None for layer, scheme in judged.items() if layer not in served)
    assert any("no engine runs it" in finding.message for finding in read.findings) == is_beyond


@pytest.mark.slow
def test_the_presets_are_those_of_compressed_tensors(ask: Callable[..., Any]) -> None:
    """Name by name, in the arguments that decide a format."""
    for name, sides in ask(presets).items():
        mine = llm_compressor.preset(name)
        assert mine is not None, name
        for side in ("weights", "input_activations"):
            said, own = sides.get(side), mine.get(side)
            assert (said is None) == (own is None), name
            for key, value in (own or {}).items():
                assert said[key] == value, (name, side, key)
            assert {key for key, value in (said or {}).items() if value is not None} <= set(own or {}), name


def test_a_later_modifier_replaces_the_schemes_that_it_reaches(tmp_path: Path) -> None:
    """The others keep theirs."""
    first = {"QuantizationModifier": {"scheme": "FP8_DYNAMIC", "targets": ["Linear"], "ignore": ["lm_head"]}}
    second = {"GPTQModifier": {"scheme": "W4A16", "targets": ["re:.*experts.*"], "ignore": ["re:.*down_proj$"]}}
    path = written(tmp_path, "recipe.yaml", yaml.safe_dump(recipe(first, second), sort_keys=False))
    found = decisions(reading(path, model("qwen3-30b-a3b")))
    assert found["model.layers.0.mlp.experts.7.up_proj"] == "weight int4 group 128, train bf16"
    assert found["model.layers.0.mlp.experts.7.down_proj"] == "weight fp8 per_channel, input fp8 per_token, train bf16"


def test_a_modifier_without_schemes_works_with_those_that_are_there(tmp_path: Path) -> None:
    """A GPTQModifier that only states a block size decides nothing."""
    first = {"QuantizationModifier": {"scheme": "NVFP4A16", "ignore": ["lm_head"]}}
    path = written(tmp_path, "recipe.json", recipe(first, {"GPTQModifier": {"block_size": 128}}))
    assert rules(path, model("llama-3.1-8b")) == ["default: weight nvfp4 per_tensor, train bf16"]


def test_the_older_awq_modifier_brings_its_own_scheme(tmp_path: Path) -> None:
    """It moves scales between layers, which is said, and has a scheme, which is read."""
    path = written(tmp_path, "recipe.json", recipe({"AWQModifier": {"scheme": "W4A16", "ignore": ["lm_head"]}}))
    found = imported(path, model("llama-3.1-8b"))
    assert "default: weight int4 group 128, train bf16" in found.text
    assert "AWQModifier scales channels" in found.text


def test_a_recipe_for_the_kv_cache_alone_leaves_the_weights(tmp_path: Path) -> None:
    """The policy has the cache's format and BF16."""
    scheme = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor"}
    path = written(tmp_path, "recipe.json", recipe({"QuantizationModifier": {"kv_cache_scheme": scheme}}))
    assert rules(path, model("llama-3.1-8b")) == ["default: bf16", "kv_cache: fp8"]


def test_the_tool_loads_no_mtp_layers() -> None:
    """A class name reaches what `transformers` builds, and it builds none."""
    found = reading(SAMPLES / "llmc_presets.yaml", model("deepseek-v3"))
    assert {decision for tensor, decision in found.decisions if tensor.mtp is not None} == {None}


def test_a_class_reaches_gates_that_no_engine_quantizes(tmp_path: Path) -> None:
    """The gate of a shared expert is a `Linear`; published recipes ignore it, and one that does not is told."""
    for ignore, codes in (([r"re:.*shared_expert_gate$", "lm_head"], []), (["lm_head"], ["P904"])):
        path = written(tmp_path, "recipe.json", recipe({"QuantizationModifier": {"scheme": "FP8", "ignore": ignore}}))
        assert [line[:4] for line in messages(imported(path, model("qwen3-next-80b-a3b")))] == codes


def test_targets_that_reach_nothing_and_targets_that_lose_are_told(tmp_path: Path) -> None:
    """An exact name beats a pattern, and a pattern a class, wherever they stand."""
    groups = {
        "experts": {"targets": [r"re:.*\.experts\..*", "re:.*conv.*"], **fp8()},
        "one": {"targets": [r"re:.*\.experts\.\d+\.up_proj$"], **fp8()},
    }
    path = written(tmp_path, "recipe.json", recipe({"QuantizationModifier": {"config_groups": groups}}))
    said = messages(imported(path, model("qwen3-30b-a3b")))
    assert [line[:4] for line in said] == ["P903", "P903"]
    assert "conv" in said[0]
    assert "up_proj" in said[1]


def fp8() -> dict[str, Any]:
    """FP8 with a scale a channel and a token, as a group has it."""
    weights = {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": False, "symmetric": True}
    inputs = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
    return {"weights": weights, "input_activations": inputs}


@pytest.mark.parametrize(
    "modifier, words",
    [
        ({"QuantizationModifier": {"scheme": "W4A16_ASYM"}}, "zero points"),
        ({"GPTQModifier": {"scheme": "W4A16", "actorder": "group"}}, "act-order"),
        ({"GPTQModifier": {"scheme": "W4A16", "actorder": "dynamic"}}, "act-order"),
        ({"QuantizationModifier": {"scheme": "W8A8"}}, "int 8 channel"),
        ({"QuantizationModifier": {"scheme": "W9A16"}}, "no preset"),
        ({"QuantizationModifier": {"scheme": "FP8", "config_groups": {"g": fp8()}}}, "exclude each other"),
        ({"SparseGPTModifier": {"sparsity": 0.5}}, "what this modifier does"),
        ({"SpinQuantModifier": {"rotations": ["R1"]}}, "what this modifier does"),
    ],
)
def test_what_has_no_spelling_is_refused(tmp_path: Path, modifier: dict[str, Any], words: str) -> None:
    """With a code and the modifier that it is about."""
    path = written(tmp_path, "recipe.json", recipe(modifier))
    with pytest.raises(Unimportable, match=words) as caught:
        reading(path, model("llama-3.1-8b"))
    assert caught.value.findings[0].code == "P902"
    assert "quant_stage.quant_modifiers" in caught.value.findings[0].message


def test_an_order_that_a_file_need_not_tell_is_no_matter(tmp_path: Path) -> None:
    """`static`, which GPTQModifier takes unless told, visits columns in another order and leaves their groups."""
    for order in ("static", "weight", None):
        path = written(tmp_path, "recipe.json", recipe({"GPTQModifier": {"scheme": "W4A16", "actorder": order}}))
        assert counts(reading(path, model("llama-3.1-8b")))["weight int4 group 128, train bf16"] == 32 * 7 + 1
