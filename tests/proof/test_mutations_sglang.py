"""Corrupted artifacts of `sglang`: read-back finds all that the engine's own code finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proof.agreement import check_corruption, check_untouched, corruptions
from proof.corruption import JUDGES, SUBJECTS
from proof.judges import Judging, judge
from proof.subjects import Subject


@pytest.fixture(scope="module")
def judging() -> Iterator[Judging]:
    """The judge, which starts once."""
    with judge(JUDGES["sglang"]) as judging:
        yield judging


@pytest.mark.parametrize("subject", SUBJECTS["sglang"], ids=str)
def test_nothing_is_found_in_what_was_not_corrupted(judging: Judging, subject: Subject) -> None:
    """The judge starts from agreement."""
    check_untouched("sglang", subject, judging)


@pytest.mark.parametrize("name", corruptions("sglang"))
def test_who_finds_a_corruption(judging: Judging, name: str) -> None:
    """As the page says; and never the engine alone."""
    check_corruption("sglang", name, judging)
