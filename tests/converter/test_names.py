"""Names with ranges: text and back, and what two of them have in common."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precc_converter.names import Box, intersection, parse_name

NUMBERS = st.integers(0, 9).flatmap(lambda first: st.integers(first, 9).map(lambda last: range(first, last + 1)))
WORDS = st.from_regex(r"[a-z_]{1,5}", fullmatch=True) | NUMBERS.map(
    lambda n: str(n.start) if len(n) == 1 else f"{{{n.start}..{n.stop - 1}}}"
)


@given(st.lists(WORDS, min_size=1, max_size=6))
def test_a_name_prints_as_it_was_read(words: list[str]) -> None:
    """Ranges of one number are plain numbers."""
    text = ".".join(words)
    assert str(parse_name(text)) == text


@given(st.tuples(NUMBERS, NUMBERS), st.tuples(NUMBERS, NUMBERS))
def test_an_intersection_has_the_members_that_both_have(one: Box, other: Box) -> None:
    """Compared with the members listed one by one."""
    both = set(product(*one)) & set(product(*other))
    common = intersection(one, other)
    assert (set(product(*common)) if common is not None else set()) == both


@pytest.mark.parametrize("text", ["", ".", "a..b", "a.", "{1..2", "{2..1}", "a{1..2}", "{1,2}", "{}"])
def test_what_is_no_name_is_refused(text: str) -> None:
    """With an error that shows it."""
    with pytest.raises(ValueError, match=r"\.|name"):
        parse_name(text)
