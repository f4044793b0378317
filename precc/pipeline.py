"""The flow, one function an arrow. Read this file first.

    SourceFile ─parse→ File ─names→ Policy ─bind(ModelGraph)→ Binding ─rules→ findings ─emit(backend)→ Artifacts
                                                                  Artifacts ─read back→ decisions == contract

The first two arrows are in `front.py`: a lint without a model needs no more. Nothing here prints, exits or logs:
findings are values, collected at every arrow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from precc import rules
from precc.backend import Artifact, Backend, Unsupported, engines_beneath
from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, error
from precc.front import Findings, ordered, read_policy
from precc.graph.model import ModelGraph
from precc.records import record, replace
from precc.resolve.bind import Binding, bind
from precc.resolve.policy import Policy
from precc.rules.ignores import Ignores
from precc.source import SourceFile


@record
class Emission:
    """What one backend made of a contract: its artifacts, and how many tensors were read back and agree."""

    target: str
    artifacts: tuple[Artifact, ...] = ()
    tensors: int = 0
    agree: int = 0


@record
class Verification:
    """Tensors compared, how many agree, and one finding for each entry that does not."""

    tensors: int
    agree: int
    findings: Findings


NOTHING_SAID: Mapping[str, str] = MappingProxyType({})


@record
class Settings:
    """What is asked for beside the policy.

    `train` and `rollout` are `key=value` words over the policy's layouts. `complete` says that all targets of the
    policy are compiled, so that every check has its say and an unused ignore comment can be told. `beneath` are the
    engines that targets start themselves.
    """

    train: Mapping[str, str] = NOTHING_SAID
    rollout: Mapping[str, str] = NOTHING_SAID
    complete: bool = False
    beneath: tuple[str, ...] = ()

    def apply(self, binding: Binding, targets: tuple[str, ...]) -> Binding:
        """The binding under these layouts, for these targets."""
        contract = binding.contract
        train = contract.train.with_settings(self.train)
        rollout = contract.rollout.with_settings(self.rollout)
        asked = dataclasses.replace(contract, train=train, rollout=rollout, targets=targets, beneath=self.beneath)
        return replace(binding, contract=asked)


ASSUMED = Settings()


@record
class Compilation:
    """Everything that one compile knows. `binding` is None when the policy itself has errors."""

    policy: Policy
    binding: Binding | None = None
    emissions: tuple[Emission, ...] = ()
    findings: Findings = ()

    @property
    def has_errors(self) -> bool:
        return any(finding.is_error for finding in self.findings)


def decide_policy(
    source: SourceFile, model: ModelGraph, targets: Sequence[str], settings: Settings = ASSUMED
) -> Compilation:
    """Text and graph → what is decided and found, before any backend has its say."""
    return decide_read(read_policy(source), model, targets, settings)


def decide_read(
    read: tuple[Policy, Findings], model: ModelGraph, targets: Sequence[str], settings: Settings = ASSUMED
) -> Compilation:
    """The same from what `read_policy` answered."""
    return _checked(read, model, targets, settings, _ignores(read[0], model))


def compile_policy(
    source: SourceFile, model: ModelGraph, backends: Sequence[Backend], settings: Settings = ASSUMED
) -> Compilation:
    """Text and graph → artifacts, each read back and compared."""
    return compile_read(read_policy(source), model, backends, settings)


def compile_read(
    read: tuple[Policy, Findings], model: ModelGraph, backends: Sequence[Backend], settings: Settings = ASSUMED
) -> Compilation:
    """The same from what `read_policy` answered, which serves any number of models."""
    policy, _ = read
    kept = _ignores(policy, model)
    settings = replace(settings, beneath=engines_beneath(backends))
    decided = _checked(read, model, [backend.name for backend in backends], settings, kept)
    if decided.binding is None:
        return decided
    findings, emissions = decided.findings, []
    for backend in backends:
        blocked = any(finding.is_error for finding in findings)
        emission, found = emit_contract(decided.binding.contract, backend, kept, write=not blocked)
        emissions.append(emission)
        findings += tuple(_placed(finding, policy, backend) for finding in found)
    unused = kept.unused() if settings.complete else ()
    return replace(decided, emissions=tuple(emissions), findings=ordered((*findings, *unused), policy.source.path))


def _ignores(policy: Policy, model: ModelGraph) -> Ignores:
    return Ignores(policy.ignores, policy.source.path, model.name)


def _checked(
    read: tuple[Policy, Findings], model: ModelGraph, targets: Sequence[str], settings: Settings, kept: Ignores
) -> Compilation:
    """Policy and graph → the binding, and what the rules find in it; no binding if the policy has errors."""
    policy, findings = read
    findings = kept.filter(findings)
    if any(finding.is_error for finding in findings):
        return Compilation(policy, findings=findings)
    binding = settings.apply(bind(policy, model), tuple(targets))
    findings += kept.filter((*rules.check_binding(binding), *rules.check_contract(binding.contract)))
    placed = tuple(_placed(finding, policy) for finding in findings)
    return Compilation(policy, binding, findings=ordered(placed, policy.source.path))


def _placed(finding: Diagnostic, policy: Policy, backend: Backend | None = None) -> Diagnostic:
    """What is about no rule stands where the engine's version is stated, else at the head of the file."""
    if finding.span is not None:
        return finding
    engines = () if backend is None else backend.engines
    settings = (setting for layout in (*policy.train, *policy.rollout) for setting in layout.settings)
    stated = next((setting.span for setting in settings if setting.key in engines), None)
    return finding.at(stated or policy.source.span(0, 0))


def emit_contract(
    contract: Contract, backend: Backend, kept: Ignores | None = None, write: bool = True
) -> tuple[Emission, Findings]:
    """Contract → artifacts of one backend, after its own rules, with what reads back otherwise."""
    kept = kept or Ignores((), "", contract.model.name)
    findings = kept.filter(rules.check_backend(backend.rules, contract))
    if not write or any(finding.is_error for finding in findings):
        return Emission(backend.name), findings
    try:
        artifacts = backend.emit(contract)
        readings = read_back(contract, backend, {artifact.path: artifact.text for artifact in artifacts})
    except Unsupported as refusal:
        return Emission(backend.name), (*findings, *kept.filter(refusal.findings))
    return Emission(backend.name, artifacts, readings.tensors, readings.agree), (*findings, *readings.findings)


def read_back(contract: Contract, backend: Backend, artifacts: Mapping[str, str]) -> Verification:
    """Artifacts → what the engine would decide, compared with the contract for every tensor."""
    wanted = backend.decides(contract)
    readings = backend.read_back(contract, artifacts)
    agree, differ = 0, dict[tuple[object, ...], list[Entry]]()
    for entry, decision, reading in zip(contract.entries, wanted, readings, strict=True):
        if reading.decision == decision:
            agree += entry.tensor.count
        else:
            differ.setdefault((decision, reading.decision, reading.because, entry.cause), []).append(entry)
    findings = tuple(_difference(backend.name, key, entries) for key, entries in differ.items())
    return Verification(sum(entry.tensor.count for entry in contract.entries), agree, findings)


def _difference(target: str, key: tuple[object, ...], entries: Sequence[Entry]) -> Diagnostic:
    decision, reading, because, cause = key
    return error(
        "P501",
        f"{target} would run {counted_names(entries)} as {reading}; the contract says {decision}",
        entries[0].span,
        help=f"the artifacts decide it in {because}; the policy in {cause}",
    )
