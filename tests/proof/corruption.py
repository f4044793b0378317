"""The mutation check: artifacts are corrupted, and read-back and the engine's own code say what they make of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from hashlib import sha256
from time import perf_counter
from typing import TypeVar

from precc import pipeline
from precc.backend import Unsupported, find_backend
from precc.contract import Contract
from precc.diagnostics import Diagnostic

from .judges import Judging, judge
from .mutations import MUTATIONS, Artifacts
from .page import table
from .reasons import ENGINE_BLIND, EQUIVALENT
from .subjects import Subject

T = TypeVar("T")

POOL = 24
"""Variants of one corruption that read-back is asked about, out of all that can be made."""

MOST = 2
"""Of these, how many that read-back finds, and how many that it does not, the engine's code is asked about."""

JUDGES: Mapping[str, str] = {"te": "te", "sglang": "sglang", "converter": "sglang"}
"""Who judges what is corrupted: a plan is judged by SGLang, which loads a checkpoint that is written after it."""

SUBJECTS: Mapping[str, tuple[Subject, ...]] = {
    "te": (
        Subject("mxfp8_attention_nvfp4_experts", "deepseek_v3"),
        Subject("mxfp8_e2e", "qwen3_moe"),
        Subject("nvfp4_four_over_six", "qwen3_moe"),
        Subject("nvfp4_pretraining", "glm4_moe"),
        Subject("two_backward_modes", "deepseek_v3"),
        Subject("recipes_of_two_stages", "qwen3_moe"),
    ),
    "sglang": (
        Subject("mxfp8_attention_nvfp4_experts", "deepseek_v3"),
        Subject("mxfp8_e2e", "qwen3_moe"),
        Subject("fp8_block", "qwen3"),
        Subject("nvfp4_four_over_six", "qwen3_moe"),
        Subject("int4_w4a16", "qwen3_moe"),
    ),
    "converter": (
        Subject("mxfp8_attention_nvfp4_experts", "qwen3_moe"),
        Subject("nvfp4_four_over_six", "qwen3_moe"),
        Subject("int4_w4a16", "qwen3_moe"),
        Subject("fp8_block", "deepseek_v3"),
    ),
}
"""What is corrupted: between them they have every kind of line, list and variable that a compile writes."""


@dataclass(frozen=True)
class Trial:
    """One variant: what was changed, and what each of the two said (nothing if it saw no difference)."""

    subject: Subject
    change: str
    read_back: str
    engine: str

    def __str__(self) -> str:
        return f"{self.subject.policy} on {self.subject.family}: {self.change}\n  {self.read_back}\n  {self.engine}"


def trials(target: str, corruption: str, judging: Judging, every: bool = False) -> Iterator[Trial]:
    """This tries variants of one corruption, out of all that can be made of any subject: some that read-back finds,
    and some that it does not."""
    pool = sample(list(_variants(target, corruption)), None if every else POOL)
    answers = [(*variant, read_back(target, variant[0].contract(target), variant[1])) for variant in pool]
    for found in (True, False):
        for answer in sample([answer for answer in answers if bool(answer[2]) == found], None if every else MOST):
            yield _judged_too(target, judging, *answer)


def _judged_too(
    target: str, judging: Judging, subject: Subject, made: Artifacts, by_model: Sequence[Diagnostic]
) -> Trial:
    by_engine = judged(judging, subject.contract(target), made)
    seen = by_engine if by_model else deciding(by_engine)
    return Trial(subject, difference(subject.artifacts, made), said(by_model), said(seen))


def _variants(target: str, corruption: str) -> Iterator[tuple[Subject, Artifacts]]:
    for subject in SUBJECTS[target]:
        artifacts = subject.artifacts
        yield from ((subject, made) for made in MUTATIONS[target][corruption](artifacts) if made != artifacts)


def sample(variants: Sequence[T], most: int | None) -> list[T]:
    """So many of the variants, the same ones whenever there are as many, and in no step with how they are made."""
    drawn = sorted(range(len(variants)), key=lambda number: sha256(str(number).encode()).digest())
    return [variants[number] for number in sorted(drawn[:most])]


def read_back(target: str, contract: Contract, artifacts: Artifacts) -> Sequence[Diagnostic]:
    """What precc's own model of the engine's rules finds."""
    try:
        return pipeline.read_back(contract, find_backend(target), artifacts).findings
    except Unsupported as refusal:
        return refusal.findings


def judged(judging: Judging, contract: Contract, artifacts: Artifacts) -> Sequence[Diagnostic]:
    """What the engine's own code finds; a file that is missing, or none of its kind, is found before that."""
    try:
        return judging(contract, artifacts).findings
    except Unsupported as refusal:
        return refusal.findings


WORDS = re.compile(r" (reads \w+ as .* after env\.sh|takes `[\w-]+` from server\.yaml as)")


def deciding(findings: Sequence[Diagnostic]) -> Sequence[Diagnostic]:
    """Those about what is run, or where the engine stops.

    SGLang's judge compares arguments and variables word by word too. One that says what the engine does without it, or
    that is for a format of no tensor, differs in its words alone.
    """
    return [finding for finding in findings if not WORDS.search(finding.message)]


def said(findings: Sequence[Diagnostic]) -> str:
    """The first finding with its code, in a line; empty for none."""
    return f"{findings[0].code}: {' '.join(findings[0].message.split())}" if findings else ""


def difference(before: Artifacts, after: Artifacts) -> str:
    """The lines that a corruption changed, the first few of them."""
    lines: list[str] = []
    for path in before:
        if before[path] != after.get(path):
            changed = unified_diff(before[path].splitlines(), after.get(path, "").splitlines(), n=0, lineterm="")
            lines += [f"{path}: {line}" for line in list(changed)[2:] if line[0] in "-+"]
    return " ⏎ ".join(lines[:4])


# --- what is shown -----------------------------------------------------------------------------------

UNEXPLAINED = "nobody has said why yet"

HEADS = ("corruption", "variants", "read-back", "the engine's code", "neither")


@dataclass(frozen=True)
class Outcome:
    """All variants of one corruption."""

    target: str
    corruption: str
    trials: tuple[Trial, ...]

    @property
    def missed(self) -> list[Trial]:
        """What only the engine's own code saw: read-back has to be improved."""
        return [trial for trial in self.trials if trial.engine and not trial.read_back]

    @property
    def unseen(self) -> list[Trial]:
        """What only read-back saw: the page says why the engine's code does not."""
        return [trial for trial in self.trials if trial.read_back and not trial.engine]

    @property
    def silent(self) -> list[Trial]:
        """What neither saw: both say that every tensor is decided as before."""
        return [trial for trial in self.trials if not trial.read_back and not trial.engine]

    @property
    def row(self) -> list[str]:
        """The corruption's row of the table."""
        seen = sum(bool(trial.read_back) for trial in self.trials), sum(bool(trial.engine) for trial in self.trials)
        return [self.corruption, *map(str, (len(self.trials), *seen, len(self.silent)))]


def run(target: str, every: bool = False) -> tuple[list[Outcome], float]:
    """This tries every corruption of one target's artifacts; with the seconds that it took."""
    started = perf_counter()
    with judge(JUDGES[target]) as judging:
        tables = MUTATIONS[target]
        outcomes = [Outcome(target, name, tuple(trials(target, name, judging, every))) for name in tables]
    return outcomes, perf_counter() - started


def text(outcomes: Sequence[Outcome]) -> str:
    """One target's part of the page: the table, and why one of the two is silent where it is."""
    blind = {
        one.corruption: ENGINE_BLIND[one.target].get(one.corruption, UNEXPLAINED) for one in outcomes if one.unseen
    }
    alike = {one.corruption: EQUIVALENT[one.target].get(one.corruption, UNEXPLAINED) for one in outcomes if one.silent}
    parts = [table(HEADS, (one.row for one in outcomes))]
    if blind:
        parts += ["\nFound by read-back alone:\n\n", *_listed(blind)]
    if alike:
        parts += ["\nFound by neither, because every tensor is decided as before:\n\n", *_listed(alike)]
    return "".join(parts)


def _listed(reasons: Mapping[str, str]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for corruption, reason in reasons.items():
        by_reason.setdefault(reason, []).append(corruption)
    yield from (f"- {', '.join(names)}: {reason}\n" for reason, names in by_reason.items())
