"""What is converted together, and in which order; and that this is worked out once for all experts."""

from __future__ import annotations

import pytest
from converter.contracts import compiled
from converter.live import POLICIES, contract
from converter.models import CONFIGS
from counting import calls

from precc.graph.model import natural
from precc_converter.conversion import units
from precc_converter.conversion.units import units_of

KIMI = "targets: converter\ndefault: bf16\n@routed_experts: weight nvfp4, train bf16\n"


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("policy", POLICIES)
def test_units_and_their_members_are_in_natural_order(policy: str, family: str) -> None:
    """Numbers compared as numbers, as the plan says; every tensor is in one unit."""
    made = contract(policy, family)
    found = units_of(made)
    names = [[member.name for member in unit.members] for unit in found]
    assert names == sorted((sorted(each, key=natural) for each in names), key=lambda each: natural(each[0]))
    every = sorted(name for each in names for name in each)
    assert every == sorted(
        f"{module}.{tensor.parameter}" if tensor.parameter else module
        for tensor in made.tensors
        for module in tensor.modules()
    )


def test_the_order_of_all_experts_is_worked_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two readings of a name for each row of experts, and seven calls for each tensor, for 69,975 of them."""
    made = compiled(KIMI, "kimi-k2")
    read: list[str] = []
    monkeypatch.setattr(units, "natural", lambda name: read.append(name) or natural(name))
    found = units_of(made)
    tensors = sum(len(unit.members) for unit in found)
    assert tensors == sum(tensor.count for tensor in made.tensors) > 60_000
    assert len(read) <= 2 * len(made.entries) < tensors / 10
    monkeypatch.undo()
    assert calls(lambda: units_of(made)) < 7.5 * tensors
