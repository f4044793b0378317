"""What a rank calls a layer or an expert, and what the whole model calls it."""

from __future__ import annotations

from typing import Any

import pytest

from precc_converter.trainer import first_expert, first_layer, global_name


def test_a_ranks_names_get_the_models_numbers() -> None:
    """Layers of the decoder and experts move; those of an MTP layer, which stands on one stage, keep their layer."""
    numbers = {"first_layer": first_layer(8, 2, 1), "first_expert": first_expert(8, 4, 3)}
    assert numbers == {"first_layer": 4, "first_expert": 6}
    moved = {
        "decoder.layers.1.mlp.experts.linear_fc1.weight1": "decoder.layers.5.mlp.experts.linear_fc1.weight7",
        "decoder.layers.1.mlp.experts.local_experts.0.linear_fc2.weight": (
            "decoder.layers.5.mlp.experts.local_experts.6.linear_fc2.weight"
        ),
        "mtp.layers.0.transformer_layer.mlp.experts.linear_fc1.weight1": (
            "mtp.layers.0.transformer_layer.mlp.experts.linear_fc1.weight7"
        ),
        "decoder.layers.1.mlp.linear_fc1.weight": "decoder.layers.5.mlp.linear_fc1.weight",
        "embedding.word_embeddings.weight": "embedding.word_embeddings.weight",
    }
    assert {name: global_name(name, **numbers) for name in moved} == moved


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: first_layer(61, 4), "61 layers are not 4 stages of 1 equal chunks; use layer_number"),
        (lambda: first_layer(8, 2, 2), "there is no stage 2: they are numbered 0 to 1"),
        (lambda: first_layer(8, 2, 1, 2, 2), "there is no chunk 2"),
        (lambda: first_expert(128, 3), "128 experts do not divide into 3 ranks"),
        (lambda: first_expert(128, 4, -1), "there is no expert-parallel rank -1"),
    ],
)
def test_a_layout_that_does_not_divide_is_refused(call: Any, says: str) -> None:
    """Megatron has settings for unequal stages; its modules then know their layer's number."""
    with pytest.raises(ValueError, match=says):
        call()
