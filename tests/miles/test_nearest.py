"""A refusal names the smallest change with which all stages would agree; made, it compiles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from miles.support import compiled, emitted, errors, findings

from precc.contract import Contract, Entry
from precc.contract.wording import tensors_of
from precc_miles.nearest import Change, nearest

REFUSED: tuple[tuple[str, str, int], ...] = (
    ("default: mxfp8\nlayers[20]: bf16\ntrain: pp=1\n", "qwen3-30b-a3b", 384),
    ("default: mxfp8\nlayers[20]: bf16\ntrain: pp=1\n", "glm-4.5-air", 384),
    ("default: mxfp8\n@mtp: mxfp8\nlayers[:2]: bf16\n", "glm-4.5-air", 391),
    ("default: mxfp8\n@mla: bf16\n", "deepseek-v3.2", 61),
    ("default: mxfp8\n", "qwen3-next-80b-a3b", 108),
    ("@routed_experts, o_proj: nvfp4 per_token\n", "qwen3-30b-a3b", 48),
)
"""A policy that no flags of Miles say, a model, and how many tensors have to be decided otherwise."""


@pytest.mark.parametrize("policy, model, tensors", REFUSED)
def test_the_change_is_small_and_makes_the_stages_agree(policy: str, model: str, tensors: int) -> None:
    """It is refused; with the change made, it reads back as decided on all stages."""
    assert {finding.code for finding in errors(policy, model)} == {"P701"}
    contract = compiled(policy, model)
    change = nearest(contract)
    assert change is not None
    assert sum(map(tensors_of, change.values())) == tensors
    made = changed(contract, change)
    assert findings(made, emitted(made)) == ()


def changed(contract: Contract, change: Change) -> Contract:
    """The contract with some entries decided otherwise."""
    wanted: dict[int, Entry] = {}
    for decision, entries in change.items():
        wanted |= {id(entry): replace(entry, decision=decision) for entry in entries}
    return replace(contract, entries=tuple(wanted.get(id(entry), entry) for entry in contract.entries))


@pytest.mark.parametrize("policy, model, tensors", REFUSED)
def test_a_refusal_names_the_stage_the_tensors_and_the_change(policy: str, model: str, tensors: int) -> None:
    """Who would do what, in the words of the contract; and what to write instead."""
    for finding in errors(policy, model):
        assert "Miles 31f1ca9" in finding.message
        assert any(
            stage in finding.message for stage in ("the converter", "the trainer", "the live export", "the server")
        )
        assert finding.help is not None
        assert f"({tensors:,} tensors)" in finding.help


@pytest.mark.parametrize("layers, whole", [("layers[-8:]", "layers[-8:]"), ("layers[:3]", "layers[:3]")])
def test_whole_layers_are_offered_where_what_is_in_bf16_ends_the_model(layers: str, whole: str) -> None:
    """Their experts alone no flags say; with all of these layers it compiles."""
    policy = "default: mxfp8\n{}: bf16\ntrain: pp=1\n"
    (found,) = errors(policy.format(f"@routed_experts in {layers}"), "qwen3-30b-a3b")
    assert found.help is not None
    assert found.help.endswith(f", or with all of `{whole}` in `bf16`")
    assert not errors(policy.format(whole), "qwen3-30b-a3b")


@pytest.mark.parametrize("layers", ["layers[20]", "layers[0, 47]", "layers[40:47]"])
def test_whole_layers_are_no_way_out_for_others_than_the_outer_ones(layers: str) -> None:
    """From layer 20 to either end is half of the model."""
    (found,) = errors(f"default: mxfp8\n@routed_experts in {layers}: bf16\ntrain: pp=1\n", "qwen3-30b-a3b")
    assert found.help is not None
    assert "all of" not in found.help
