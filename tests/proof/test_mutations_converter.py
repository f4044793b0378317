"""Corrupted artifacts of `converter`: read-back finds all that the engine's own code finds."""

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
    with judge(JUDGES["converter"]) as judging:
        yield judging


@pytest.mark.parametrize("subject", SUBJECTS["converter"], ids=str)
def test_nothing_is_found_in_what_was_not_corrupted(judging: Judging, subject: Subject) -> None:
    """The judge starts from agreement."""
    check_untouched("converter", subject, judging)


@pytest.mark.parametrize("name", corruptions("converter"))
def test_who_finds_a_corruption(judging: Judging, name: str) -> None:
    """As the page says; and never the engine alone."""
    check_corruption("converter", name, judging)
