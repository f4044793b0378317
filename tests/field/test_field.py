"""Each disagreement of the field, compiled: what precc decides, refuses and writes."""

from __future__ import annotations

import pytest
from field.cases import Case, all_cases
from field.checking import check_compiled


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_a_case_comes_out_as_it_says(case: Case) -> None:
    """Every row and sentence holds, nothing grave is found that the case does not name, and all sides agree."""
    check_compiled(case)
