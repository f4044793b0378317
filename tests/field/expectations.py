"""The sentences that a case may expect, each with what it asserts of an outcome.

`SENTENCES` is the table; the README beside the cases says the same to whoever writes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from field.outcome import Outcome

Words: TypeAlias = dict[str, str]


@dataclass(frozen=True)
class Expectation:
    """One sentence, and the check that it stands for."""

    text: str
    form: str
    words: Words
    check: Callable[[Outcome, Words], None]

    @property
    def is_unread(self) -> bool:
        """Whether the model itself is expected to be refused."""
        return "unread" in self.words

    @property
    def named(self) -> tuple[str, int] | None:
        """The code and line of a finding that is expected."""
        return (self.words["code"], int(self.words["line"])) if "line" in self.words else None


def read_expectation(text: str) -> Expectation | None:
    """The expectation that a sentence says; None if it says none."""
    for form, (pattern, check) in SENTENCES.items():
        if found := re.fullmatch(pattern, text):
            words = {key: word for key, word in found.groupdict().items() if word is not None}
            return Expectation(text, form, words, check)
    return None


def _found(outcome: Outcome, words: Words) -> None:
    findings = outcome.compiled_for((words["target"],)).findings if "target" in words else outcome.findings
    here = [f for f in findings if f.code == words["code"] and f.span and f.span.line == int(words["line"])]
    assert here, f"{words['code']} is not found there, but: {[(f.code, f.message) for f in findings]}"
    said = [f"{finding.message} {finding.help or ''}" for finding in here]
    assert any(words.get("says", "") in text for text in said), said


def _no_findings(outcome: Outcome, _words: Words) -> None:
    assert not outcome.grave


def _not_found(outcome: Outcome, words: Words) -> None:
    assert words["code"] not in {finding.code for finding in outcome.findings}


def _has(outcome: Outcome, words: Words) -> None:
    assert _flat(words["text"]) in _flat(_file(outcome, words)), _file(outcome, words)


def _has_not(outcome: Outcome, words: Words) -> None:
    assert _flat(words["text"]) not in _flat(_file(outcome, words))


def _is_written(outcome: Outcome, words: Words) -> None:
    assert words["path"] in outcome.artifacts


def _is_not_written(outcome: Outcome, words: Words) -> None:
    assert outcome.artifacts
    assert words["path"] not in outcome.artifacts


def _is_short(outcome: Outcome, words: Words) -> None:
    assert len(_file(outcome, words).splitlines()) <= int(words["most"])


def _names_contract(outcome: Outcome, words: Words) -> None:
    assert outcome.contract.digest in _file(outcome, words)


def _unread(outcome: Outcome, words: Words) -> None:
    assert words["unread"] in outcome.unread, outcome.unread


def _is_refused(outcome: Outcome, _words: Words) -> None:
    """The engine's words are those of its own code: see `judging`."""
    assert any(finding.is_error for finding in outcome.findings)


def _file(outcome: Outcome, words: Words) -> str:
    assert words["path"] in outcome.artifacts, f"{words['path']} is none of {sorted(outcome.artifacts)}"
    return outcome.artifacts[words["path"]]


def _flat(text: str) -> str:
    return " ".join(text.split())


_CODE = r"(?P<code>P\d{3})"
_PATH = r"`?(?P<path>[a-z]+/[\w.]+)`?"
_AT = rf"{_CODE} at line (?P<line>\d+)"
_SAYS = r'(?:, which says "(?P<says>.+)")?'

SENTENCES: Mapping[str, tuple[str, Callable[[Outcome, Words], None]]] = {
    "P302 at line 3": (rf"{_AT}{_SAYS}", _found),
    "P701 at line 1 for sglang": (rf"{_AT} for (?P<target>[a-z]+){_SAYS}", _found),
    "no findings": (r"no findings", _no_findings),
    "no P104": (rf"no {_CODE}", _not_found),
    "te/megatron.args has `--bf16`": (rf"{_PATH} has `(?P<text>.+)`", _has),
    "te/megatron.args has no `--fp8-format`": (rf"{_PATH} has no `(?P<text>.+)`", _has_not),
    "te/env.sh is written": (rf"{_PATH} is written", _is_written),
    "te/env.sh is not written": (rf"{_PATH} is not written", _is_not_written),
    "te/env.sh has at most 40 lines": (rf"{_PATH} has at most (?P<most>\d+) lines", _is_short),
    "te/env.sh names the contract": (rf"{_PATH} names the contract", _names_contract),
    'written all the same, sglang says "would never read"': (
        r'written all the same, (?P<engine>\w+) says "(?P<engine_says>.+)"',
        _is_refused,
    ),
    'the model cannot be read: "no known model family"': (r'the model cannot be read: "(?P<unread>.+)"', _unread),
}
"""An example of each sentence, its form and its check."""
