"""A contract carried over to a small model keeps every decision, of layers and of experts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from precc.contract import Contract
from precc.contract.fold import fold
from precc.contract.shrinking import shrunken
from precc.formats import Decision
from precc.graph.errors import ModelError
from precc.graph.reading import read_model
from precc.pipeline import decide_policy
from precc.source import SourceFile

POLICY = "default: mxfp8\nexperts.*: nvfp4\nlayers[-15%:]: bf16\nlm_head: bf16\n"


def decided(model: str, policy: str = POLICY) -> Contract:
    """The contract of a policy text for a model."""
    binding = decide_policy(SourceFile("p.prec", policy), read_model(model), ["converter"]).binding
    assert binding is not None
    return binding.contract


def lines(contract: Contract) -> dict[str, Decision]:
    """Each line of the normal form without shapes, all experts written `{e}`."""
    every = f"{{0..{contract.model.expert_count - 1}}}"
    return {
        line.name.replace(every, "{e}"): line.entry.decision
        for line in fold(contract.entries, lambda entry: entry.decision)
    }


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3", "deepseek-v3.2", "glm-4.6", "mixtral-8x7b"])
def test_every_decision_is_carried_over(model: str) -> None:
    """The normal form is the same; only sizes and the number of experts differ."""
    contract = decided(model)
    small = shrunken(contract)
    assert lines(small.contract) == lines(contract)
    assert small.contract.model.parameters < contract.model.parameters / 10
    assert [origin.decision for origin in small.origins] == [entry.decision for entry in small.contract.entries]


def test_experts_that_are_decided_apart_stay_apart() -> None:
    """Each range keeps an expert of its own, however many ranges there are."""
    contract = decided("qwen3-30b-a3b", f"{POLICY}experts.5.*, experts.100.*: bf16\n")
    small = shrunken(contract)
    assert small.experts == (0, 5, 6, 100, 101)
    kept = [e for e in small.contract.entries if e.tensor.part == "up" and e.tensor.layer == 3]
    assert [(e.tensor.experts, e.decision.is_quantized) for e in kept] == [
        (range(1), True),
        (range(1, 2), False),
        (range(2, 3), True),
        (range(3, 4), False),
        (range(4, 5), True),
    ]


def test_fewer_layers_show_each_way_in_which_layers_are_decided() -> None:
    """Dense and routed, quantized and kept; too few are refused."""
    contract = decided("deepseek-v3")
    small = shrunken(contract, layers=4)
    assert set(lines(small.contract).values()) == set(lines(contract).values())
    assert small.contract.model.layers == 4
    with pytest.raises(ModelError, match="decided in 3 ways"):
        shrunken(contract, layers=2)


def test_layouts_targets_and_the_cache_stay() -> None:
    """What the contract says of the job is not the model's."""
    contract = decided("qwen3-8b", "default: mxfp8\nkv_cache: fp8\nrollout: tp=4\n")
    contract = replace(contract, targets=("te", "sglang"))
    small = shrunken(contract).contract
    assert (small.kv_cache, small.rollout, small.targets) == ("fp8", contract.rollout, ("te", "sglang"))
