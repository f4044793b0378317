"""Nemotron-H: layers of one mixer each, two spellings of their kinds, latent experts, an MTP layer of two blocks."""

from __future__ import annotations

from typing import Any

import pytest
from graph.expansion import facts

from precc.graph.config import describe
from precc.graph.errors import ModelError
from precc.graph.model import ModelGraph
from precc.graph.reading import read_model
from precc.graph.shrinking import shrink
from precc.syntax.words import Role

NANO, SUPER, ULTRA = "nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b", "nemotron-3-ultra-550b-a55b"


def changed(**fields: Any) -> ModelGraph:
    """Nano with other fields; None for one that is absent."""
    config = {key: value for key, value in {**facts(NANO)[0], **fields}.items() if value is not None}
    return describe(config, "config.json").graph("changed")


def test_a_layer_has_one_mixer_of_the_kind_that_its_letter_names() -> None:
    """Mamba-2, attention or experts, and one norm ahead of it."""
    graph, pattern = read_model(NANO), facts(NANO)[0]["hybrid_override_pattern"]
    roles = {"M": {Role.LINEAR_ATTENTION}, "*": {Role.ATTENTION}, "E": {Role.ROUTED_EXPERTS, Role.SHARED_EXPERTS}}
    for layer, letter in enumerate(pattern):
        tensors = [tensor for tensor in graph.tensors if tensor.layer == layer]
        assert {tensor.role for tensor in tensors if tensor.is_gemm} - {Role.ROUTER} == roles[letter]
        assert [tensor.path[-1] for tensor in tensors if tensor.role is Role.NORM].count("norm") == 1 + (letter == "M")


def test_the_graphs_are_as_large_as_the_models_names() -> None:
    """31.6 billion parameters, as its report says; 120 and 550 without the MTP layer."""
    assert round(read_model(NANO).parameters / 1e9, 1) == 31.6
    for name, billions in ((SUPER, 120), (ULTRA, 550)):
        decoder = sum(tensor.parameters for tensor in read_model(name).tensors if tensor.mtp is None)
        assert decoder / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_list_of_kinds_is_the_same_model_as_a_pattern() -> None:
    """`num_hidden_layers` follows from either."""
    kinds = {"M": "mamba", "*": "attention", "E": "moe"}
    listed = [kinds[letter] for letter in facts(NANO)[0]["hybrid_override_pattern"]]
    graph = changed(layers_block_type=listed, hybrid_override_pattern=None, num_hidden_layers=None)
    assert graph.tensors == read_model(NANO).tensors


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"hybrid_override_pattern": "MEX"}, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": "M" * 51}, "layers_block_type"),
        ({"layers_block_type": ["mamba"] * 52}, "layers_block_type"),
        ({"hybrid_override_pattern": 7}, "hybrid_override_pattern"),
        ({"n_groups": 7}, "n_groups"),
        ({"use_bias": True}, "use_bias"),
        ({"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "EE"}, "mtp_layers_block_type"),
    ],
)
def test_fields_that_contradict_each_other_are_named(fields: dict[str, Any], named: str) -> None:
    """The field and what it may be, in one error."""
    with pytest.raises(ModelError) as caught:
        changed(**fields)
    assert f"`{named}`" in caught.value.message
    assert caught.value.help


def test_routed_experts_multiply_in_the_latent_space_where_there_is_one() -> None:
    """Between two projections of no role that every token passes; shared experts stay outside."""
    for name, width, outside in ((SUPER, 2688, 1024), (NANO, 1856, 2688)):
        tensors = [tensor for tensor in read_model(name).tensors if tensor.layer == 1]
        shapes = {tensor.part: tensor.shape for tensor in tensors if tensor.role is Role.ROUTED_EXPERTS}
        assert shapes == {"up": (width, outside), "down": (outside, width)}
        latent = {tensor.part: tensor.shape for tensor in tensors if tensor.part.startswith("latent")}
        assert latent == ({"latent_in": (1024, 4096), "latent_out": (4096, 1024)} if name == SUPER else {})
        up = next(tensor for tensor in tensors if tensor.role is Role.SHARED_EXPERTS and tensor.part == "up")
        assert up.shape[1] == read_model(name).config["hidden_size"]


def test_the_mtp_layer_is_two_blocks() -> None:
    """Attention behind the projection of both inputs, then experts before the last norm."""
    ahead = [tensor for tensor in read_model(SUPER).tensors if tensor.mtp is not None]
    assert {tensor.mtp for tensor in ahead} == {0}
    blocks = {tensor.path[2] for tensor in ahead}
    assert blocks == {"0", "1"}
    first = {tensor.path[3] for tensor in ahead if tensor.path[2] == "0"}
    assert first == {"enorm", "hnorm", "eh_proj", "norm", "mixer"}
    assert {tensor.path[3] for tensor in ahead if tensor.path[2] == "1"} == {"norm", "mixer", "final_layernorm"}


def test_a_small_model_has_every_kind_of_layer() -> None:
    """Four of the first and last ones, or of those before, so that attention is among them."""
    small = shrink(read_model(NANO), layers=4)
    assert set(small.config["layers_block_type"]) == {"mamba", "attention", "moe"}
    assert shrink(read_model(NANO), layers=2).graph.layers == 2
