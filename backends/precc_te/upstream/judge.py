"""The judge: it starts the installed engines as a user would, with the artifacts, and compares what is in force."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from precc.backend import EngineUnavailable, Judgement
from precc.contract import Contract
from precc.contract.wording import amount, listed
from precc.diagnostics import Diagnostic, error
from precc_te.emission import ENV_JSON, ENV_SHELL
from precc_te.environment import OTHER_VARIABLES, VARIABLES
from precc_te.plan import plan
from precc_te.running import Running
from precc_te.stages import SCRIPT
from precc_te.upstream.available import judging
from precc_te.upstream.findings import Comparison, count
from precc_te.upstream.process import Worker
from precc_te.upstream.recipes import fresh, stale
from precc_te.upstream.structure import layouts_of, structure_of
from precc_te.upstream.trial import try_job
from precc_te.upstream.wire import Engines, Job, Layout, Process, Seen, Stop, words_of


class Judge:
    """One worker for any number of contracts: `with Judge() as judge: judge(contract, artifacts)`.

    `engines` are folders with engines (as `pip install --target` makes them) that come before the installed ones.
    """

    def __init__(self, engines: Sequence[Path | str] = ()) -> None:
        self.worker = Worker(engines)
        self._processes: dict[tuple[str, tuple[tuple[str, str], ...]], Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.worker.__exit__(*raised)

    def __call__(self, contract: Contract, artifacts: Mapping[str, str]) -> Judgement:
        """This asks the engines. Raises EngineUnavailable where they are not those that the artifacts are for."""
        installed = self.worker.engines
        contract = judging(contract, installed)
        if not layouts_of(contract):
            raise EngineUnavailable(
                f"Megatron-Core builds no model of {contract.model.layers} layers at {_stated(contract)}",
                "state a `train:` layout in which the layers divide",
            )
        with TemporaryDirectory(prefix="precc-te-") as folder:
            root = Path(folder)
            write(root, artifacts)
            return _Case(self, contract, root, installed).judge()

    def process(self, script: Path, wanted: Mapping[str, str]) -> Process:
        """A fresh process under a script, over an environment that is contrary to what is wanted."""
        lines = script.read_text().splitlines() if script.exists() else []
        text = "\n".join(line for line in lines if not line.startswith("#"))
        key = (text, tuple(sorted(wanted.items())))
        if key not in self._processes:
            self._processes[key] = fresh(script, {**self.worker.environment, **stale(wanted)})
        return self._processes[key]


def write(root: Path, artifacts: Mapping[str, str]) -> None:
    """This writes artifacts below a folder; scripts can be run."""
    for name, text in artifacts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if name == SCRIPT:
            path.chmod(0o755)


def _stated(contract: Contract) -> Layout:
    return Layout(contract.train.pp, contract.train.vpp)


class _Case:
    """One contract and its artifacts, before the judge."""

    def __init__(self, judge: Judge, contract: Contract, root: Path, installed: Engines) -> None:
        self._judge = judge
        self._contract = contract
        self._root = root
        self._versions = {"megatron_core": installed.megatron_core, "te": installed.te}
        engine = f"Megatron-Core {installed.megatron_core} with TransformerEngine {installed.te}"
        self._parser = not installed.parser
        self._comparison = Comparison(contract, engine)
        self._findings: list[Diagnostic] = []
        self._checks: list[str] = []

    def judge(self) -> Judgement:
        """Everything that was seen, as a judgement."""
        process = self._judge.process(self._root / ENV_SHELL, plan(self._contract).process.variables())
        if process.problem:
            self._findings.append(self._comparison.stop(Stop(f"`{ENV_SHELL}`", process.problem)))
        else:
            self._run(process)
        compared = self._comparison
        return Judgement(
            self._versions,
            count(line.entry for line, _ in compared.lines()),
            0 if any(finding.code == "P512" for finding in self._findings) else count(compared.agreeing()),
            (*self._findings, *compared.differences()),
            tuple(self._checks),
        )

    def _run(self, process: Process) -> None:
        self._findings += _survivors(process.environment)
        contrary = len(stale({}))
        self._checks.append(
            f"TransformerEngine {self._versions['te']}'s recipe classes, in a fresh process under `{ENV_SHELL}` over "
            f"{contrary} contrary variables"
        )
        for where, environment in self._environments(process):
            self._ask(where, environment, process.recipes)

    def _environments(self, process: Process) -> Iterator[tuple[str, Mapping[str, str]]]:
        """What a process is started with by `env.sh`, and by `env.json` where that is something else."""
        yield "", process.environment
        before = {**process.environment, **stale(plan(self._contract).process.variables())}
        try:
            listed_ = json.loads((self._root / ENV_JSON).read_text())
            left = {name: value for name, value in before.items() if name not in listed_["unset"]}
            after = {**left, **{str(name): str(value) for name, value in listed_["set"].items()}}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            self._findings.append(self._comparison.stop(Stop(f"`{ENV_JSON}`", words_of(problem))))
            return
        if _matter(after) != _matter(process.environment):
            yield f", under {ENV_JSON}", after

    def _ask(self, where: str, environment: Mapping[str, str], recipes: Mapping[str, Running]) -> None:
        layouts, stated = layouts_of(self._contract), _stated(self._contract)
        if (stated.pp, stated.vpp) not in {(layout.pp, layout.vpp) for layout in layouts}:
            self._checks.append(f"not at the stated pp={stated.pp} vpp={stated.vpp}, in which the layers do not divide")
        job = Job(str(self._root / "te"), environment, structure_of(self._contract), layouts)
        seen = self._judge.worker.ask(try_job, environment, job=job)
        if isinstance(seen, Stop):
            seen = Seen(stops=[seen])
        for layout, found in seen.layouts.items():
            in_force = {path: sighting.running for path, sighting in found.items()}
            self._comparison.note(f"{layout}{where}", in_force)
            if not where:
                self._comparison.confirm(f"a fresh process under `{ENV_SHELL}`", found, recipes)
        self._findings += map(self._comparison.stop, _distinct(seen.stops))
        self._checks += self._said(seen, where)

    def _said(self, seen: Seen, where: str) -> Iterator[str]:
        parser = "Megatron's argument parser and its checks" if self._parser else "TransformerConfig's own checks"
        yield f"{parser} on `te/megatron.args`{where}"
        for layout, found in seen.layouts.items():
            yield f"{amount(len(found), 'linear layer')} of a GPTModel at {layout}{where}, each reached by its forward"


def _survivors(environment: Mapping[str, str]) -> Iterator[Diagnostic]:
    for name in OTHER_VARIABLES:
        if name in environment:
            yield error(
                "P511",
                f"a process started under `{ENV_SHELL}` keeps {name}={environment[name]} of another run; the contract "
                "has nothing for it",
            )


def _matter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in VARIABLES if name in environment}


def _distinct(stops: Sequence[Stop]) -> Iterator[Stop]:
    """Stops with the same words are one, at all their places."""
    places: dict[str, list[str]] = {}
    for stop in stops:
        places.setdefault(stop.words, []).append(stop.doing)
    yield from (Stop(listed([f"({place})" for place in where]), words) for words, where in places.items())
