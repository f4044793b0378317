"""No complaint is forgotten: each is a case, or is listed with the reason."""

from __future__ import annotations

from field.cases import INDEX, all_cases
from field.coverage import COMPLAINTS, MILES, answered, excused
from field.expectations import SENTENCES


def test_every_disagreement_of_miles_is_a_case() -> None:
    """D1 to D19, none of them excused."""
    assert set(MILES) <= answered()


def test_every_complaint_is_a_case_or_has_a_reason() -> None:
    """And none is both, and nothing else has a number."""
    assert answered() | set(excused()) == set(COMPLAINTS)
    assert not answered() & set(excused())


def test_no_two_cases_have_one_name() -> None:
    """A failing test names the case."""
    names = [(case.numbers, case.title) for case in all_cases()]
    assert len(set(names)) == len(names)


def test_every_sentence_stands_in_the_instructions_and_in_a_case() -> None:
    """The README's table has each form that the runner knows, and each is in use."""
    instructions = INDEX.read_text(encoding="utf-8")
    used = {expectation.form for case in all_cases() for expectation in case.expectations}
    assert used == set(SENTENCES)
    for form in SENTENCES:
        assert form in instructions, form
