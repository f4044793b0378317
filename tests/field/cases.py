"""The field's case files: Markdown that says what went wrong out there, and what must come of it here.

A case is a heading, a paragraph, a list of what it is about, a policy, and a list or a table of what is expected:

    ## D4 · an MTP layer under "first N layers in BF16"

    What went wrong, in plain words.

    - seen in: radixark/miles#614
    - model: deepseek-v3

    ```prec
    default: mxfp8
    ```

    | tensor | decision | sglang |
    | --- | --- | --- |
    | `model.layers.61.self_attn.o_proj` | bf16 | unquantized |

    - P403 at line 1

Nothing is skipped: a line that has no meaning is an error that names file and line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from field.expectations import Expectation, read_expectation

FOLDER = Path(__file__).parent.parent / "cases" / "field"
INDEX = FOLDER / "README.md"

TARGETS = ("te", "sglang", "converter")
ENGINES = ("te", "sglang")
HEAD = ("seen in", "model", "train", "rollout", "engine")
COLUMNS = ("tensor", "decision", *TARGETS)
INLINE = "this config.json"
FENCES = ("prec", "json")

_NUMBER = r"(?:[A-Z]\d*|\d+)"
_HEADING = re.compile(rf"## (?P<numbers>{_NUMBER}(?:, {_NUMBER})*) · (?P<title>\S.*)")
_SMALL = re.compile(r"(?P<model>\S+) with (?P<layers>\d+) layers")
_FIELD = re.compile(r"- (?P<key>[a-z ]+): (?P<value>\S.*)")


class CaseError(Exception):
    """A case file that cannot be read, with its file and line."""


@dataclass(frozen=True)
class Row:
    """One line of a case's table: what is decided for a tensor, and what each side makes of it."""

    tensor: str
    cells: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Case:
    """One case: a policy on a model, and everything that is expected of it.

    `numbers` are those of the complaints that it answers. `config` is the `config.json` that stands in the case, for a
    model that has no name.
    """

    place: str
    numbers: tuple[str, ...]
    title: str
    facts: Mapping[str, str]
    policy: str
    config: Mapping[str, Any] | None = None
    rows: tuple[Row, ...] = ()
    expectations: tuple[Expectation, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"{', '.join(self.numbers)}: {self.title}"

    @property
    def engines(self) -> tuple[str, ...]:
        """The targets whose installed engines judge the case too."""
        return tuple(self.facts["engine"].split(", ")) if "engine" in self.facts else ()

    @property
    def model(self) -> str:
        """The model's name, without the number of layers that it is made small to."""
        return self.facts["model"].partition(" with ")[0]

    @property
    def layers(self) -> int | None:
        """How many of the model's layers are left; None for all, at their full size."""
        found = _SMALL.fullmatch(self.facts["model"])
        return int(found["layers"]) if found else None

    def words(self, side: str) -> Mapping[str, str]:
        """What a `train` or `rollout` line says."""
        return dict(word.split("=", 1) for word in self.facts.get(side, "").split())


def all_cases() -> list[Case]:
    """The cases of every file of the folder; its README holds none."""
    return [case for path in sorted(FOLDER.glob("*.md")) if path != INDEX for case in read_cases(path)]


def read_cases(path: Path) -> list[Case]:
    """The cases of one file. Raises CaseError."""
    lines = path.read_text(encoding="utf-8").splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("## ")]
    if not starts or not any(line and not line.startswith("#") for line in lines[: starts[0]]):
        raise CaseError(f"{path.name}:1: a file begins with a paragraph that says how to add a case, and has cases")
    ends = (*starts[1:], len(lines))
    return [_Section(path.name, lines, start, end).case() for start, end in zip(starts, ends, strict=True)]


class _Section:
    """The lines of one case, read in order."""

    def __init__(self, file: str, lines: Sequence[str], start: int, end: int) -> None:
        self.file, self.lines, self.at, self.end = file, lines, start, end

    def case(self) -> Case:
        place = f"{self.file}:{self.at + 1}"
        heading = _HEADING.fullmatch(self._next())
        if heading is None:
            raise self._error("a heading is `## NUMBER · what went wrong`")
        if not list(self._prose()):
            raise self._error("the case does not say in words what went wrong")
        facts = dict(self._facts())
        fences = dict(self._fences())
        case = Case(
            place=place,
            numbers=tuple(heading["numbers"].split(", ")),
            title=heading["title"],
            facts=facts,
            policy=fences.get("prec", ""),
            config=self._config(fences),
            rows=tuple(self._rows()),
            expectations=tuple(self._expectations()),
        )
        for problem in _problems(case):
            raise self._error(problem)
        return case

    # --- the parts, in the order in which they stand ---

    def _prose(self) -> Iterator[str]:
        while (line := self._peek()) and not line.startswith(("- ", "```", "|")):
            yield self._next()

    def _facts(self) -> Iterator[tuple[str, str]]:
        seen = set[str]()
        while self._peek().startswith("- "):
            found = _FIELD.fullmatch(self._next())
            if found is None or found["key"] not in HEAD:
                raise self._error(f"before the policy stand lines `- WORD: …` with {', '.join(HEAD)}")
            if found["key"] in seen:
                raise self._error(f"`{found['key']}` stands twice")
            seen.add(found["key"])
            yield found["key"], found["value"].replace("`", "")

    def _fences(self) -> Iterator[tuple[str, str]]:
        while self._peek().startswith("```"):
            kind = self._next().removeprefix("```")
            if kind not in FENCES:
                raise self._error(f"a block is ```prec or ```json, not ```{kind}")
            body = list[str]()
            while self.at < self.end and self.lines[self.at] != "```":
                body.append(self.lines[self.at])
                self.at += 1
            if self.at == self.end:
                raise self._error("the block does not end")
            self.at += 1
            yield kind, "".join(f"{line}\n" for line in body)

    def _config(self, fences: Mapping[str, str]) -> Mapping[str, Any] | None:
        if "json" not in fences:
            return None
        try:
            shown: Mapping[str, Any] = json.loads(fences["json"])
        except ValueError as problem:
            raise self._error(f"the ```json block is not valid: {problem}") from None
        return shown

    def _rows(self) -> Iterator[Row]:
        if not self._peek().startswith("|"):
            return
        columns = self._cells()
        if columns[:1] != ["tensor"] or len(columns) < 2 or (unknown := set(columns) - set(COLUMNS)):
            raise self._error(f"a table's columns are `tensor` and some of {', '.join(COLUMNS[1:])}, not {unknown}")
        if not all(re.fullmatch("-+:?", cell) for cell in self._cells()):
            raise self._error("the second line of a table is | --- | --- |")
        while self._peek().startswith("|"):
            cells = self._cells()
            if len(cells) != len(columns) or not any(cells[1:]):
                raise self._error(f"this line of the table has not {len(columns)} cells, or expects nothing")
            yield Row(cells[0], {column: cell for column, cell in zip(columns[1:], cells[1:], strict=True) if cell})

    def _cells(self) -> list[str]:
        line = self._next()
        if not line.endswith("|"):
            raise self._error("a line of a table ends in |")
        return [cell.strip().replace("`", "") for cell in line[1:-1].split("|")]

    def _expectations(self) -> Iterator[Expectation]:
        while self._peek():
            line = self._next()
            found = read_expectation(line.removeprefix("- ")) if line.startswith("- ") else None
            if found is None:
                raise self._error(f"`{line}` is nothing that a case can expect")
            yield found

    # --- lines ---

    def _peek(self) -> str:
        """The next line that is not empty; empty at the end of the case."""
        while self.at < self.end and not self.lines[self.at].strip():
            self.at += 1
        return self.lines[self.at] if self.at < self.end else ""

    def _next(self) -> str:
        line = self._peek()
        self.at += 1
        return line

    def _error(self, message: str) -> CaseError:
        return CaseError(f"{self.file}:{self.at}: {message}")


def _problems(case: Case) -> Iterator[str]:
    """What is missing in a case, and what does not go together."""
    yield from (f"the case has no line `- {key}: …`" for key in ("seen in", "model") if key not in case.facts)
    if not case.policy:
        yield "the case has no policy: a block that begins with ```prec"
    if not case.rows and not case.expectations:
        yield "the case expects nothing"
    if (case.facts["model"] == INLINE) != (case.config is not None):
        yield f"`model: {INLINE}` and a ```json block go together"
    if " " in case.facts["model"] and case.config is None and case.layers is None:
        yield "a model is a name, `NAME with 8 layers`, or `this config.json`"
    if any("=" not in word for side in ("train", "rollout") for word in case.facts.get(side, "").split()):
        yield "a layout is made of words such as `tp=2`"
    yield from (
        f"no engine judges `{name}`; there are {', '.join(ENGINES)}" for name in case.engines if name not in ENGINES
    )
    asked = (each.words["engine"] for each in case.expectations if "engine" in each.words)
    yield from (f"what {name} says takes a line `- engine: {name}`" for name in asked if name not in case.engines)
