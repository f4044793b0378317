"""Ready policies on every family, judged for `te`: the cells of the page are what is computed now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proof.agreement import check_cell
from proof.judges import Judging, judge
from proof.subjects import Subject, chosen


@pytest.fixture(scope="module")
def judging() -> Iterator[Judging]:
    """The judge, which starts once."""
    with judge("te") as judging:
        yield judging


@pytest.mark.parametrize("subject", chosen(), ids=str)
def test_the_page_says_what_the_engine_says(judging: Judging, subject: Subject) -> None:
    """Agrees, refused or cannot: with the tensors, the code or the engine's own words."""
    check_cell("te", subject, judging)
