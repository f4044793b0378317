"""The case files hold: each policy yields its findings, or its canonical form."""

from __future__ import annotations

import pytest
from syntax.cases import Case, finding_cases, findings_text, fixed, format_cases

from precc.source import SourceFile
from precc.syntax import format_source, parse

FINDINGS = list(finding_cases())
FORMATS = list(format_cases())


@pytest.mark.parametrize("case", FINDINGS, ids=lambda case: case.title)
def test_a_policy_yields_its_findings(case: Case) -> None:
    """Place, code, message, help and fixed line are those of the case file."""
    assert findings_text(case.policy) == case.expected


@pytest.mark.parametrize("case", FINDINGS, ids=lambda case: case.title)
def test_a_fix_removes_its_finding(case: Case) -> None:
    """After the edits the same code is no longer reported with the same message."""
    for finding in parse(SourceFile("case.prec", case.policy))[1]:
        if finding.fix:
            after = parse(SourceFile("case.prec", fixed(finding)))[1]
            assert (finding.code, finding.message) not in [(other.code, other.message) for other in after]


@pytest.mark.parametrize("case", FORMATS, ids=lambda case: case.title)
def test_a_policy_has_its_canonical_form(case: Case) -> None:
    """The formatter writes what stands below `# output`."""
    assert format_source(SourceFile("case.prec", case.policy)) == (case.expected, ())


@pytest.mark.parametrize("case", FORMATS, ids=lambda case: case.title)
def test_the_canonical_form_stays_as_it_is(case: Case) -> None:
    """Formatting twice changes nothing more."""
    assert format_source(SourceFile("case.prec", case.expected)) == (case.expected, ())


def test_the_case_files_are_found() -> None:
    """An empty folder would pass every test above."""
    assert len(FINDINGS) > 100
    assert len(FORMATS) > 5
