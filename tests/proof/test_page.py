"""`docs/verification.md` has a cell for everything that is judged, and the small models are what it says they are."""

from __future__ import annotations

import pytest

from precc.graph.families import families
from precc.graph.reading import read_model
from proof import corruption, matrix, page, reasons
from proof.judges import TARGETS
from proof.mutations import MUTATIONS
from proof.subjects import LAYERS, MODELS, policies, small_model


@pytest.mark.parametrize("target", TARGETS)
def test_no_cell_is_blank(target: str) -> None:
    """A row for each family, a column for each ready policy, and words in every cell."""
    heads, *rows = page.rows(page.part(f"matrix {target}"))
    assert heads == ["family", *(f"`{policy}`" for policy in policies())]
    assert [row[0] for row in rows] == [f"`{family}`" for family in MODELS]
    cells = [cell for row in rows for cell in row[1:]]
    assert len(cells) == len(MODELS) * len(policies())
    known = ("agrees (", "refused ([P", "engine cannot (", matrix.NOT_A_TARGET)
    assert [cell for cell in cells if not cell.startswith(known)] == []


@pytest.mark.parametrize("target", TARGETS)
def test_every_corruption_has_its_row(target: str) -> None:
    """In the order of the table that they are made from."""
    heads, *rows = page.rows(page.part(f"mutations {target}"))
    assert tuple(heads) == corruption.HEADS
    assert [row[0] for row in rows] == list(MUTATIONS[target])


@pytest.mark.parametrize("target", TARGETS)
def test_reasons_are_given_for_corruptions_that_are_made(target: str) -> None:
    """No reason outlives its corruption."""
    assert not {*reasons.ENGINE_BLIND[target], *reasons.EQUIVALENT[target]} - {*MUTATIONS[target]}


def test_every_family_is_judged() -> None:
    """A new family has a model here before it is released."""
    assert set(MODELS) == {family.name for family in families()}


@pytest.mark.parametrize("family", MODELS)
def test_a_small_model_has_the_parts_of_the_large_one(family: str) -> None:
    """Every kind of weight, by role and part, on four layers."""
    small, large = small_model(family), read_model(MODELS[family])
    assert small.layers == LAYERS
    assert small.family == family
    kinds = [{(tensor.role, tensor.part, tensor.within) for tensor in graph.tensors} for graph in (small, large)]
    assert kinds[0] == kinds[1]
