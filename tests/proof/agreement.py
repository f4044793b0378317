"""What the tests of every target assert: the page's cell is what the judge says now."""

from __future__ import annotations

import re

from . import corruption, matrix, page
from .judges import Judging
from .mutations import MUTATIONS
from .reasons import ENGINE_BLIND, EQUIVALENT
from .subjects import Subject


def check_cell(target: str, subject: Subject, judging: Judging) -> None:
    """This judges one subject and compares it with the page: its cell, its reason, the versions, what was run."""
    text = page.part(f"matrix {target}")
    heads, *rows = page.rows(text)
    row = next(row for row in rows if row[0] == f"`{subject.family}`")
    made = matrix.cell(target, subject, judging)
    reasons = re.findall(r"^\d+\. (.*)$", text, re.MULTILINE)
    assert "disagrees" not in made.words, made.why
    assert not made.why or made.why in reasons
    assert row[heads.index(f"`{subject.policy}`")] == matrix.shown(made, reasons)
    if made.judgement is not None:
        assert f"Judged by {matrix.judged_by(made.judgement)}.\n" in text
        listed = re.findall(r"^- (.*)$", text, re.MULTILINE)
        assert {matrix.general(check) for check in made.judgement.checks} <= {*listed}


def check_corruption(target: str, name: str, judging: Judging) -> None:
    """This makes every variant of one corruption, and compares who finds it with the page.

    Read-back finds all that the engine's code finds. What the engine does not see, and what neither sees, has a
    reason on the page.
    """
    made = corruption.Outcome(target, name, tuple(corruption.trials(target, name, judging)))
    assert made.trials
    assert list(map(str, made.missed)) == []
    assert not made.unseen or name in ENGINE_BLIND[target], made.unseen
    assert not made.silent or name in EQUIVALENT[target], made.silent
    text = page.part(f"mutations {target}")
    assert made.row in page.rows(text)
    for reasons, trials in ((ENGINE_BLIND, made.unseen), (EQUIVALENT, made.silent)):
        assert not trials or any(name in line and reasons[target][name] in line for line in text.splitlines())


def corruptions(target: str) -> list[str]:
    """The names of the corruptions of a target's artifacts."""
    return list(MUTATIONS[target])


def check_untouched(target: str, subject: Subject, judging: Judging) -> None:
    """Without a corruption, nobody finds anything: what is found above is found because of it."""
    found = judging(subject.contract(target), subject.artifacts)
    assert [finding.message for finding in found.findings] == []
    assert found.agree == found.tensors > 0
