"""The judge: artifacts given to the installed SGLang, and what it makes of them compared with the contract."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from precc.backend import Judgement, Unsupported
from precc.contract import Contract
from precc.contract.shrinking import SmallContract, shrunken
from precc.contract.wording import amount
from precc.graph.shrinking import complete_config
from precc_sglang.emission import unknown_architecture
from precc_sglang.environment import environment, variables_of
from precc_sglang.methods import Choice, choice_of
from precc_sglang.paths import CONFIG_PATH, LEGACY_PATH, SERVER_PATH, SHELL_PATH
from precc_sglang.refusal import unreadable
from precc_sglang.server import arguments
from precc_sglang.upstream.available import judging_versions
from precc_sglang.upstream.comparing import Case, compare
from precc_sglang.upstream.expected import checkpoint, filled, holders
from precc_sglang.upstream.plan import PLAN_PATH, planned
from precc_sglang.upstream.process import Worker, started
from precc_sglang.upstream.wire import Job, Parameter, Seen
from precc_sglang.versions import capability

FILES = {SERVER_PATH: "server.yaml", SHELL_PATH: "env.sh", LEGACY_PATH: "hf_quant_config.json"}
"""Where each artifact stands beside `config.json`."""


class Judge:
    """One live SGLang to judge any number of compiles: the installed one, or one that is in the folders of `path`.

    with Judge() as judge:
        judgement = judge(contract, {artifact.path: artifact.text for artifact in artifacts})
    """

    def __init__(self, path: Sequence[str] = ()) -> None:
        self._path = path
        self._stack = ExitStack()
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, contract: Contract, artifacts: Mapping[str, str]) -> Judgement:
        """What SGLang makes of the artifacts (path → text, of all targets that were compiled together).

        Raises EngineUnavailable, and Unsupported for artifacts that are missing or no text of their kind.
        """
        engines = judging_versions(contract, self._path)
        choice = choice_of(contract)
        if choice is None:
            raise Unsupported(unknown_architecture(contract))
        small = shrunken(contract)
        with TemporaryDirectory() as folder:
            job = prepare(contract, choice, small, artifacts, Path(folder))
            seen: Seen = self.worker.ask("judge", job)
        case = Case(f"SGLang {engines['sglang']}", contract, choice, small, job.stored, seen)
        tensors, agree, findings = compare(case)
        return Judgement(engines, tensors, agree, findings, tuple(_checks(case, job, PLAN_PATH in artifacts)))

    @property
    def worker(self) -> Worker:
        """The live process. It is started on first use, which takes some seconds."""
        if self._worker is None:
            self._worker = self._stack.enter_context(started(self._path))
        return self._worker


def upstream(contract: Contract, artifacts: Mapping[str, str]) -> Judgement:
    """This asks the installed SGLang, in a process of its own."""
    with Judge() as judge:
        return judge(contract, artifacts)


def prepare(
    contract: Contract, choice: Choice, small: SmallContract, artifacts: Mapping[str, str], folder: Path
) -> Job:
    """This writes both checkpoint folders, and is the question about them."""
    plan = artifacts.get(PLAN_PATH)
    wanted = environment(contract)
    variables = {name: wanted["set"].get(name) for name in variables_of(contract.rollout)}
    found = holders(contract, choice)
    return Job(
        full=_folder(folder / "full", complete_config(contract.model), artifacts),
        small=_folder(folder / "small", small.config, artifacts),
        stored=checkpoint(small.contract) if plan is None else _planned(small, plan),
        filled=filled(found),
        variables=variables,
        arguments=dict(arguments(contract, choice)),
        capability=capability(contract.rollout),
        draft=any(holder.draft for holder in found),
    )


def _planned(small: SmallContract, text: str) -> dict[str, Parameter]:
    try:
        return planned(small, text)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise unreadable(f"{PLAN_PATH} is no plan: {type(problem).__name__}: {problem}", "compile again") from None


def _folder(folder: Path, config: dict[str, Any], artifacts: Mapping[str, str]) -> str:
    """A checkpoint folder without weights, with the artifacts in it."""
    folder.mkdir()
    try:
        quantization = json.loads(_text(artifacts, CONFIG_PATH))
    except ValueError as problem:
        raise unreadable(f"{CONFIG_PATH} is not JSON: {problem}") from None
    config = {key: value for key, value in config.items() if key != "quantization_config"}
    if quantization is not None:
        config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config))
    for path, name in FILES.items():
        if path != LEGACY_PATH or path in artifacts:
            (folder / name).write_text(_text(artifacts, path))
    return str(folder)


def _text(artifacts: Mapping[str, str], path: str) -> str:
    text = artifacts.get(path)
    if text is None:
        raise unreadable(f"{path} is missing", "compile again; every artifact of a target belongs together")
    return text


# --- what was run ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sizes:
    """A small model in words."""

    small: SmallContract

    def __str__(self) -> str:
        model, experts = self.small.contract.model, len(self.small.experts)
        words = [f"all {model.layers} layers", f"hidden size {model.config['hidden_size']}"]
        return ", ".join([*words, amount(experts, "expert")] if experts else words)


def _checks(case: Case, job: Job, planned: bool) -> Iterator[str]:
    seen = case.seen
    yield f"env.sh sourced over {len(job.variables)} contrary variables, each then read by SGLang"
    if not seen.resolved:
        return
    said = ", ".join(f"{name} {value}" for name, value in seen.resolved.items() if value not in ("None", "auto"))
    gpu = case.contract.rollout.gpu.upper()
    yield f"server.yaml parsed by SGLang's parser, and resolved by its ServerArgs as one rank on a {gpu}: {said}"
    drafted = f", and {amount(len(seen.draft), 'module')} of its draft model" if job.draft else ""
    built = amount(len(seen.modules), "module")
    yield f"{case.contract.model.architecture} built at its own size without memory: {built}{drafted}"
    if seen.loaded is not None:
        after = "the converter's plan" if planned else "the contract"
        number = amount(len(job.stored), "tensor")
        yield f"a small checkpoint ({_Sizes(case.small)}) of {number}, written after {after}, loaded over poison"
