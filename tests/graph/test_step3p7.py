"""Step-3.7: sliding layers of another width, stacked experts, MTP layers that slide, and the published counts."""

from __future__ import annotations

from typing import Any

import pytest
from graph.expansion import facts

from precc.graph.config import describe
from precc.graph.errors import ModelError
from precc.graph.reading import read_model
from precc.graph.shrinking import shrink
from precc.syntax.words import Role

NAME = "step-3.7-flash"


def test_the_decoder_has_the_parameters_that_are_published() -> None:
    """196.96 billion without its MTP layers and its tower; 804 tensors of text, 667 of the tower."""
    tensors = read_model(NAME).tensors
    seen = [tensor for tensor in tensors if tensor.name.startswith(("vision_model.", "vit_large_projector."))]
    text = [tensor for tensor in tensors if tensor not in seen]
    assert sum(tensor.parameters for tensor in text if tensor.mtp is None) == 196_956_130_368
    assert (sum(tensor.count for tensor in text), sum(tensor.count for tensor in seen)) == (804, 667)


def test_layers_that_slide_have_heads_of_their_own() -> None:
    """64 heads in a layer of full attention, 96 in one that slides, and the MTP layers slide."""
    kinds = facts(NAME)[0]["text_config"]["layer_types"]
    heads = {"full_attention": 64, "sliding_attention": 96}
    gates = [tensor for tensor in read_model(NAME).tensors if tensor.path[-2:] == ("self_attn", "g_proj")]
    decoder = {tensor.layer: tensor.shape[0] for tensor in gates if tensor.mtp is None}
    assert decoder == {layer: heads[kinds[layer]] for layer in range(45)}
    drafts = {tensor.mtp: tensor.shape[0] for tensor in gates if tensor.mtp is not None}
    assert drafts == {layer: heads[kinds[45 + layer]] for layer in range(3)} == dict.fromkeys(range(3), 96)


def test_an_mtp_layer_has_a_dense_mlp_and_a_head_of_its_own() -> None:
    """No experts, no embedding."""
    paths = {tensor.path[-1]: tensor.role for tensor in read_model(NAME).tensors if tensor.mtp == 0}
    assert Role.ROUTED_EXPERTS not in paths.values()
    assert "embed_tokens" not in paths
    assert {"eh_proj", "output", "g_proj"} <= paths.keys()


def test_a_smaller_one_slides_and_routes() -> None:
    """Its lists are as long as its layers are many, so that it reads as a model of the family."""
    graph = shrink(read_model(NAME), 4).graph
    assert {Role.DENSE_MLP, Role.ROUTED_EXPERTS, Role.SHARED_EXPERTS} <= {tensor.role for tensor in graph.tensors}
    assert len({t.shape for t in graph.tensors if t.path[-2:] == ("self_attn", "q_proj")}) == 2


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["half_attention"] * 48}, "layer_types"),
        ({"moe_layers_enum": "3,4,"}, "moe_layers_enum"),
        ({"moe_layers_enum": [3, 4]}, "moe_layers_enum"),
        ({"moe_layers_enum": "3,99"}, "moe_layers_enum"),
        ({"attention_other_setting": None}, "attention_other_setting"),
        ({"use_head_wise_attn_gate": False}, "use_head_wise_attn_gate"),
        ({"moe_top_k": 289}, "num_experts_per_tok"),
    ],
)
def test_what_contradicts_or_is_not_covered_is_named(changes: dict[str, Any], field: str) -> None:
    """Lists of another length or of other words, layers that are none, attention without gates."""
    config = facts(NAME)[0]
    config["text_config"].update(changes)
    with pytest.raises(ModelError) as caught:
        describe(config, "config.json")
    assert field in caught.value.message
