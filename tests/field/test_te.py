"""Megatron-Core and TransformerEngine themselves, on the cases that name them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from field.cases import Case
from field.judging import Ask, cases_for, check_judged

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """One process with both engines."""
    from precc_te.upstream import Judge

    with Judge() as judge:
        yield judge


@pytest.mark.parametrize("case", cases_for("te"), ids=str)
def test_the_trainer_does_with_a_case_as_it_says(case: Case, ask: Ask) -> None:
    """The recipe in force in every linear layer of a real model is the one that was decided."""
    check_judged(case, "te", ask)
