"""The cases before the engines' own code: what is written runs as decided, and what is refused would not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from field.cases import Case, all_cases
from field.outcome import outcome_of

from precc.backend import Judgement
from precc.contract import Contract

Ask = Callable[[Contract, Mapping[str, str]], Judgement]


def cases_for(engine: str) -> list[Case]:
    """The cases that an engine shall judge."""
    return [case for case in all_cases() if engine in case.engines]


def check_judged(case: Case, engine: str, ask: Ask) -> None:
    """Assert that an engine's own code does with a case as the case says."""
    outcome = outcome_of(case)
    said = [each.words["engine_says"] for each in case.expectations if each.words.get("engine") == engine]
    if not said:
        assert outcome.artifacts, f"{case.place}: it does not compile, and does not say what {engine} makes of that"
        check_agreement(ask(outcome.contract, outcome.artifacts))
        return
    found = ask(outcome.contract, outcome.written_all_the_same(engine)).findings
    messages = [finding.message for finding in found]
    for words in said:
        assert any(words in message for message in messages), messages


def check_agreement(judgement: Judgement) -> None:
    """Assert that an engine was asked about something, and found nothing."""
    assert not judgement.findings, [finding.message for finding in judgement.findings]
    assert judgement.agree == judgement.tensors > 0
    assert judgement.engines
    assert judgement.checks
