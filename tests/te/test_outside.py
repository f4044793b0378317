"""The parameters that no recipe matches have the names that the live export knows them by."""

from __future__ import annotations

import pytest
from te.support import compiled

from precc_converter.trainer.slots import INNER, Slots
from precc_te import backend

MODELS = ("qwen3-30b-a3b", "deepseek-v3", "glm-4.5-air", "gpt-oss-20b", "mixtral-8x7b", "qwen3-0.6b", "minimax-m2")

PARTS = ("router", "embed", "head", "sinks")


@pytest.mark.parametrize("name", MODELS)
def test_a_parameter_is_called_what_the_live_export_calls_it(name: str) -> None:
    """Whose names are compared with the parameters of real GPTModels; a tensor has either of the two names."""
    contract = compiled("default: bf16\n", name, "megatron_core=0.16")
    slots, seen = Slots(contract.model), set()
    for entry in contract.entries:
        held = backend.outside(contract, entry).get("megatron")
        assert held is None or not backend.names(contract, entry)
        if held is not None:
            assert held.name == slots.of(entry.tensor).name
            seen.add(entry.tensor.part)
        else:
            assert entry.tensor.part not in PARTS
    assert INNER == "transformer_layer"
    assert seen >= {"embed", "head"}


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "nemotron-3-nano-30b-a3b", "mimo-v2-flash"])
def test_a_model_that_megatron_does_not_build_has_no_parameters(name: str) -> None:
    """No name is made up for it."""
    contract = compiled("default: bf16\n", name)
    assert not any(backend.outside(contract, entry) for entry in contract.entries)
