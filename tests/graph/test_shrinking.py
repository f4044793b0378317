"""Small models of the same structure: what blocks see of every size stays, and `config.json` gives the same graph."""

from __future__ import annotations

import json
from math import gcd
from pathlib import Path

import pytest

from precc.graph.catalogue import catalogue
from precc.graph.config import describe
from precc.graph.errors import ModelError
from precc.graph.model import ModelGraph, Tensor
from precc.graph.reading import read_model
from precc.graph.shrinking import BLOCK, complete_config, opened, shrink

MODELS = catalogue()


def divisors(tensor: Tensor) -> list[int]:
    """What of each axis a block can tell; none runs along the experts of a stack."""
    return [gcd(size, BLOCK) for size in tensor.shape[1 if tensor.stacked else 0 :]]


def by_place(graph: ModelGraph) -> dict[object, Tensor]:
    """The tensors that a policy may quantize, by layer and name."""
    weights = (tensor for tensor in graph.tensors if tensor.is_gemm and not tensor.protected)
    return {(tensor.layer, opened(tensor)): tensor for tensor in weights}


@pytest.mark.parametrize("name", MODELS)
def test_every_size_is_as_divisible_as_it_was(name: str) -> None:
    """A width that no block of 128 divides stays one; so do those that only 64, 32 or 16 divide."""
    graph = read_model(name)
    large, small = by_place(graph), by_place(shrink(graph).graph)
    assert {place: divisors(tensor) for place, tensor in small.items()} == {
        place: divisors(tensor) for place, tensor in large.items()
    }


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layers", [None, 5])
def test_the_config_gives_the_small_graph(name: str, layers: int | None, tmp_path: Path) -> None:
    """As any other that is read from a file, but for what a checkpoint stores otherwise."""
    small = shrink(read_model(name), layers)
    (tmp_path / "config.json").write_text(json.dumps(small.config))
    stored = small.graph.config["lm_head_stored"]
    assert describe(small.config, name, stored).graph(name).tensors == small.graph.tensors
    assert read_model(str(tmp_path)).layers == small.graph.layers == (layers or read_model(name).layers)


@pytest.mark.parametrize("name", MODELS)
def test_a_complete_config_gives_the_graph_itself(name: str) -> None:
    """With the fields that an engine wants beside those that decide about tensors."""
    graph = read_model(name)
    config = complete_config(graph)
    assert describe(config, name, graph.config["lm_head_stored"]).graph(name).tensors == graph.tensors
    text = config.get("text_config", config)
    assert {"rope_theta", "rms_norm_eps", "max_position_embeddings", "hidden_act"} <= text.keys()


@pytest.mark.parametrize("name", MODELS)
def test_a_small_model_is_small(name: str) -> None:
    """Two hundred million parameters at most, with all layers."""
    graph = read_model(name)
    small = shrink(graph).graph
    assert small.parameters < min(200_000_000, graph.parameters)
    assert small.expert_count == min(4, graph.expert_count)
    assert len({tensor.part for tensor in small.tensors}) == len({tensor.part for tensor in graph.tensors})


def test_layers_keep_their_kinds() -> None:
    """The dense ones of a model come first; the last layers are the large model's last."""
    small = shrink(read_model("deepseek-v3"), 6)
    assert small.layers == (0, 1, 2, 58, 59, 60)
    assert small.config["first_k_dense_replace"] == 3
    assert [t.layer for t in small.graph.tensors if t.path[-1] == "gate" and t.mtp is None] == [3, 4, 5]
    assert small.graph.mtp_layers == 1


def test_experts_that_are_named_are_kept() -> None:
    """And some more, in order."""
    small = shrink(read_model("qwen3-30b-a3b"), experts=[17, 127])
    assert small.experts == (0, 1, 17, 127)
    assert shrink(read_model("qwen3-30b-a3b"), experts=range(64)).experts == tuple(range(64))


def test_dense_layers_between_routed_ones_can_be_kept_only_all_together() -> None:
    """A family that has its dense layers first cannot say so of fewer."""
    config = {**complete_config(read_model("deepseek-v2-lite")), "moe_layer_freq": 2}
    graph = describe(config, "x").graph("x")
    assert shrink(graph).graph.layers == graph.layers
    with pytest.raises(ModelError, match="dense layers stand between routed ones"):
        shrink(graph, 6)
