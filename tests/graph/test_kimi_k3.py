"""Kimi-K3: the released index to the byte, two kinds of attention, and what a configuration of it may say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from graph.expansion import facts

from precc.graph.config import describe
from precc.graph.errors import ModelError
from precc.graph.model import Tensor
from precc.graph.reading import read_model
from precc.graph.shrinking import shrink
from precc.syntax.words import Role

NAME = "kimi-k3"
MXFP4_BLOCK = 32


def test_the_graph_is_the_released_index() -> None:
    """497,220 tensors in 1,560,860,324,864 bytes: a packed weight and a scale for each of 82,432 experts' matrices."""
    graph = read_model(NAME)
    packed = [tensor for tensor in graph.tensors if tensor.role is Role.ROUTED_EXPERTS]
    codes, scales = (sum(tensor.parameters for tensor in packed) // every for every in (2, MXFP4_BLOCK))
    held = Counter({"mxfp4": 2 * sum(tensor.count for tensor in packed)})
    size = codes + scales
    for tensor in graph.tensors:
        if tensor.role is not Role.ROUTED_EXPERTS:
            held[tensor.dtype] += tensor.count
            size += tensor.parameters * {"bf16": 2, "fp32": 4}[tensor.dtype]
    assert held == {"mxfp4": 494_592, "bf16": 2_122, "fp32": 506}
    assert (sum(held.values()), size) == (497_220, 1_560_860_324_864)


def test_the_tower_and_its_projector_are_all_there() -> None:
    """165 tensors and 3."""
    names = [tensor.name for tensor in read_model(NAME).tensors]
    assert sum(name.startswith("vision_tower.") for name in names) == 165
    assert sum(name.startswith("mm_projector.") for name in names) == 3


def test_every_layer_has_the_attention_that_the_configuration_counts_from_one() -> None:
    """Layer 3 is the fourth, and the last layer follows another with latent attention."""
    section = facts(NAME)[0]["text_config"]["linear_attn_config"]
    latent = {tensor.layer for tensor in read_model(NAME).tensors if tensor.path[-1] == "kv_a_proj_with_mqa"}
    delta = {tensor.layer for tensor in read_model(NAME).tensors if tensor.path[-1] == "f_a_proj"}
    assert latent == {layer - 1 for layer in section["full_attn_layers"]}
    assert delta == {layer - 1 for layer in section["kda_layers"]}


def test_decays_are_stored_as_wide_as_a_head() -> None:
    """A number for each of 96 heads, in 128 places."""

    def shape(tensors: tuple[Tensor, ...]) -> set[tuple[int, ...]]:
        return {tensor.shape for tensor in tensors if tensor.path[-1] == "A_log"}

    assert shape(read_model(NAME).tensors) == {(128,)}


def test_a_smaller_one_has_both_kinds_of_attention_and_of_mlp() -> None:
    """Its experts' space stays another than the decoder's."""
    graph = shrink(read_model(NAME), 4).graph
    roles = {tensor.role for tensor in graph.tensors}
    assert {Role.ATTENTION, Role.LINEAR_ATTENTION, Role.DENSE_MLP, Role.ROUTED_EXPERTS} <= roles
    assert graph.config["moe_latent_size"] != graph.config["hidden_size"]


@pytest.mark.parametrize(
    "section, changes, field",
    [
        ("linear_attn_config", {"kda_layers": [1, 2]}, "linear_attn_config.kda_layers"),
        ("linear_attn_config", {"full_attn_layers": [0]}, "linear_attn_config.kda_layers"),
        ("linear_attn_config", {"num_heads": 256}, "linear_attn_config.num_heads"),
        ("linear_attn_config", {"use_full_rank_gate": False}, "linear_attn_config.use_full_rank_gate"),
        ("", {"linear_attn_config": None}, "linear_attn_config"),
        ("", {"mla_use_output_gate": False}, "mla_use_output_gate"),
        ("", {"latent_moe_use_norm": False}, "latent_moe_use_norm"),
        ("", {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers"),
        ("", {"num_experts_per_token": 897}, "num_experts_per_tok"),
    ],
)
def test_what_contradicts_or_is_not_covered_is_named(section: str, changes: dict[str, Any], field: str) -> None:
    """Layers that are in neither list, more heads than a decay has places, other attention."""
    config = facts(NAME)[0]
    text = config["text_config"]
    (text[section] if section else text).update(changes)
    with pytest.raises(ModelError) as caught:
        describe(config, "config.json")
    assert field in caught.value.message
