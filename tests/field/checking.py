"""A case compiled and held against everything that it expects."""

from __future__ import annotations

from field.cases import Case, Row
from field.outcome import Outcome, messages, outcome_of


def check_compiled(case: Case) -> None:
    """Assert each row and sentence, that nothing grave is found beside them, and that all sides agree."""
    outcome = outcome_of(case)
    assert not outcome.unread or any(each.is_unread for each in case.expectations), outcome.unread
    for expectation in case.expectations:
        expectation.check(outcome, expectation.words)
    for row in case.rows:
        check_row(outcome, row)
    named = {expectation.named for expectation in case.expectations}
    surprises = [f for f in outcome.grave if (f.code, f.span.line if f.span else 0) not in named]
    assert not surprises, f"{case.place}:\n{messages(surprises)}"
    check_read_back(outcome)


def check_row(outcome: Outcome, row: Row) -> None:
    """Assert one line of a table: the decision word for word, and the beginning of what each side says of it."""
    for column, wanted in row.cells.items():
        if column != "decision":
            shown = str(outcome.reading(column, row.tensor).decision)
            assert shown.startswith(wanted), f"{row.tensor}: {column} says {shown}"
        elif row.tensor == "kv_cache":
            assert outcome.contract.kv_cache == wanted
        else:
            assert str(outcome.contract[row.tensor].decision) == wanted, row.tensor


def check_read_back(outcome: Outcome) -> None:
    """Assert that what was written reads back as decided on every target, tensor for tensor."""
    if outcome.artifacts and outcome.compilation:
        assert {emission.target for emission in outcome.compilation.emissions} == set(outcome.targets)
        assert all(emission.tensors == emission.agree > 0 for emission in outcome.compilation.emissions)
