"""The matrix: every ready policy on every family, judged by each engine's own code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

from precc.backend import EngineUnavailable, Judgement

from .judges import TARGETS, Judging, judge
from .page import table
from .subjects import MODELS, Subject, policies, subjects

NOT_A_TARGET = "not a target"
CANNOT = "P512"


@dataclass(frozen=True)
class Cell:
    """What one engine makes of one policy on one family: the words of the cell, and why it cannot (else empty)."""

    subject: Subject
    words: str
    why: str = ""
    judgement: Judgement | None = field(default=None, compare=False)


def cell(target: str, subject: Subject, judging: Judging) -> Cell:
    """This judges one subject. No cell is blank: agrees, refused, the engine cannot, it disagrees, not a target."""
    if target not in subject.targets:
        return Cell(subject, NOT_A_TARGET)
    codes = sorted({finding.code for finding in subject.refusals(target)})
    if codes:
        return Cell(subject, f"refused ({', '.join(f'[{code}](diagnostics/{code}.md)' for code in codes)})")
    try:
        found = judging(subject.contract(target), subject.artifacts)
    except EngineUnavailable as missing:
        return Cell(subject, "engine cannot", str(missing))
    if not found.findings and found.agree == found.tensors > 0:
        nothing = "" if subject.policy == "bf16" or any(subject.contract(target).quantized()) else ", all BF16"
        return Cell(subject, f"agrees ({found.tensors} tensors{nothing})", judgement=found)
    words = "engine cannot" if {finding.code for finding in found.findings} == {CANNOT} else "disagrees"
    return Cell(subject, words, " ".join(f"{finding.code}: {finding.message}" for finding in found.findings), found)


@dataclass
class Engine:
    """One engine's part of the matrix, and the seconds that it took."""

    target: str
    cells: list[Cell] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def judgements(self) -> list[Judgement]:
        return [cell.judgement for cell in self.cells if cell.judgement is not None]

    def text(self) -> str:
        """This part of the page: who judged, what was run, the table and the reasons in it."""
        reasons = list(dict.fromkeys(cell.why for cell in self.cells if cell.why))
        numbered = "".join(f"{number}. {' '.join(why.split())}\n" for number, why in enumerate(reasons, 1))
        return "".join(
            (
                f"Judged by {judged_by(self.judgements[0])}.\n\n",
                *(
                    f"- {check}\n"
                    for check in sorted({general(one) for found in self.judgements for one in found.checks})
                ),
                "\n",
                table(("family", *(f"`{policy}`" for policy in policies())), self._rows(reasons)),
                f"\n{numbered}" if numbered else "",
            )
        )

    def _rows(self, reasons: list[str]) -> Iterator[list[str]]:
        found = {(cell.subject.policy, cell.subject.family): cell for cell in self.cells}
        for family in MODELS:
            cells = (found[policy, family] for policy in policies())
            yield [f"`{family}`", *(shown(cell, reasons) for cell in cells)]


def shown(cell: Cell, reasons: list[str]) -> str:
    """A cell as it stands in the table; where the engine cannot, with the number of the reason below."""
    return f"{cell.words} ({reasons.index(cell.why) + 1})" if cell.why else cell.words


def judged_by(found: Judgement) -> str:
    """The engines with their versions."""
    return ", ".join(f"{name} {version}" for name, version in sorted(found.engines.items()))


_SPECIFIC = re.compile(r"(?<![\w=.])\d+(?= (?:linear layers|modules|tensors|experts?|of its)\b)")


def general(check: str) -> str:
    """What was run, without the sizes and names of one model, and the settings of one policy, that a check ends in."""
    return _SPECIFIC.sub("*n*", re.sub(r"\w+ForCausalLM", "the model class", check.partition(": ")[0]))


def run(target: str, full: bool = False) -> Engine:
    """This judges every subject for one target, in one process; on the models themselves if `full`."""
    assert target in TARGETS
    started, made = perf_counter(), Engine(target)
    with judge(target) as judging:
        made.cells = [cell(target, subject, judging) for subject in subjects(full)]
    made.seconds = perf_counter() - started
    return made
