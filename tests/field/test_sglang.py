"""SGLang itself, on the cases that name it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from field.cases import Case
from field.judging import Ask, cases_for, check_judged

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """One live server process."""
    from precc_sglang.upstream import Judge

    with Judge() as judge:
        yield judge


@pytest.mark.parametrize("case", cases_for("sglang"), ids=str)
def test_the_server_does_with_a_case_as_it_says(case: Case, ask: Ask) -> None:
    """Every module's method, and every parameter of a loaded checkpoint, is what was decided."""
    check_judged(case, "sglang", ask)
