"""The engines that the tests judge with: the installed ones, and others in folders of the same environment."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from precc.contract import Contract
from precc_te.plan import plan
from precc_te.upstream.judge import Judge, write
from precc_te.upstream.process import Worker
from precc_te.upstream.recipes import stale
from precc_te.upstream.structure import structure_of
from precc_te.upstream.wire import Job, Layout, Stop

FOLDER = Path(sys.prefix) / "engines"
TESTS = Path(__file__).parents[1]
INSTALLED = {"megatron_core": "0.16.1", "te": "2.20.2"}
MEGATRONS = ("0.16.1", "0.19.2")
OLD_TE = "2.17.0"

Answer = TypeVar("Answer")
T = TypeVar("T")


def in_turn(cases: Iterable[T]) -> list[tuple[T, str]]:
    """Each case for one of the two Megatrons: what holds for either is not shown twice."""
    return [(case, MEGATRONS[number % len(MEGATRONS)]) for number, case in enumerate(cases)]


class Judges:
    """One judge a pair of versions, started when first asked."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[tuple[str, str], Judge] = {}

    def __call__(self, megatron_core: str = INSTALLED["megatron_core"], te: str = INSTALLED["te"]) -> Judge:
        key = (megatron_core, te)
        if key not in self._started:
            judge = self._stack.enter_context(Judge([*folders(megatron_core, te), TESTS]))
            found = judge.worker.engines
            assert (found.megatron_core, found.te, found.problem) == (*key, "")
            self._started[key] = judge
        return self._started[key]


def folders(megatron_core: str, te: str) -> Iterator[Path]:
    """Where the versions are that are not the installed ones."""
    if megatron_core != INSTALLED["megatron_core"]:
        yield FOLDER / f"megatron-core-{megatron_core}"
    if te != INSTALLED["te"]:
        yield FOLDER / f"transformer-engine-{te}"


@contextmanager
def started() -> Iterator[Judges]:
    """The judges of a test session."""
    with ExitStack() as stack:
        yield Judges(stack)


def job_of(contract: Contract, artifacts: Mapping[str, str], folder: Path, layout: Layout) -> Job:
    """The artifacts on disk, to be started in one layout under `env.json`'s variables over stale ones."""
    write(folder, artifacts)
    variables = plan(contract).process.variables()
    return Job(str(folder / "te"), variables, structure_of(contract), (layout,))


def ask(worker: Worker, function: Any, job: Job, **request: Any) -> Any:
    """A live process under the job's own environment; fails where Megatron did."""
    kept = {name: value for name, value in worker.environment.items() if name not in stale({})}
    found = worker.ask(function, {**kept, **job.environment}, job=job, **request)
    assert not isinstance(found, Stop), found.words
    return found
