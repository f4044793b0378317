"""The flow, one function an arrow. Read this file first.

    SourceFile ─parse→ File ─names→ Policy ─bind(ModelGraph)→ Binding ─rules→ findings ─emit(backend)→ Artifacts
                                                                  Artifacts ─read back→ decisions == contract

Nothing here prints, exits or logs: findings are values, collected at every arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from precc import rules
from precc.backend import Artifact, Backend, Unsupported
from precc.contract import Cause, Contract, Entry
from precc.diagnostics import Diagnostic, error
from precc.graph.model import ModelGraph
from precc.resolve import Binding, Policy, bind, resolve_names
from precc.rules.ignores import Ignores
from precc.source import SourceFile
from precc.syntax import parse

Findings: TypeAlias = tuple[Diagnostic, ...]


@dataclass(frozen=True)
class Emission:
    """What one backend made of a contract: its artifacts, and how many tensors were read back and agree."""

    target: str
    artifacts: tuple[Artifact, ...] = ()
    tensors: int = 0
    agree: int = 0


@dataclass(frozen=True)
class Verification:
    """Tensors compared, how many agree, and one finding for each entry that does not."""

    tensors: int
    agree: int
    findings: Findings


@dataclass(frozen=True)
class Settings:
    """What the command line says over the policy: `--train` and `--rollout` as `key=value` words.

    `complete` says that all targets of the policy are compiled, so that every check had its say. `recorded` is how
    a contract names a policy's file, so that it is the same wherever the project lies.
    """

    train: Mapping[str, str] = field(default_factory=dict)
    rollout: Mapping[str, str] = field(default_factory=dict)
    complete: bool = False
    recorded: Callable[[str], str] = str

    def apply(self, binding: Binding, targets: tuple[str, ...]) -> Binding:
        """The binding under these layouts, for these targets."""
        contract = binding.contract
        train = contract.train.with_settings(dict(self.train))
        rollout = contract.rollout.with_settings(dict(self.rollout))
        return replace(binding, contract=replace(contract, train=train, rollout=rollout, targets=targets))

    def record(self, contract: Contract) -> Contract:
        """The contract with its rules' files named as they are recorded."""
        named: dict[Cause, Cause] = {}

        def name(cause: Cause) -> Cause:
            if cause not in named:
                named[cause] = replace(cause, file=self.recorded(cause.file)) if cause.line else cause
            return named[cause]

        def rename(entry: Entry) -> Entry:
            clauses = tuple((part, name(cause)) for part, cause in entry.clauses)
            return replace(entry, cause=name(entry.cause), clauses=clauses, beaten=tuple(map(name, entry.beaten)))

        return replace(contract, entries=tuple(map(rename, contract.entries)))


ASSUMED = Settings()


@dataclass(frozen=True)
class Compilation:
    """Everything that one compile knows. `binding` is None when the policy itself has errors."""

    policy: Policy
    binding: Binding | None = None
    emissions: tuple[Emission, ...] = ()
    findings: tuple[Diagnostic, ...] = field(default=())

    @property
    def has_errors(self) -> bool:
        return any(finding.is_error for finding in self.findings)


def read_policy(source: SourceFile) -> tuple[Policy, tuple[Diagnostic, ...]]:
    """Text → policy, with what can be said of it without a model."""
    file, syntax = parse(source)
    policy, names = resolve_names(file)
    findings = (*syntax, *names)
    if not any(finding.is_error for finding in findings):
        findings = (*findings, *rules.check_policy(policy))
    return policy, ordered(findings)


def decide_policy(
    source: SourceFile, model: ModelGraph, targets: Sequence[str], settings: Settings = ASSUMED
) -> Compilation:
    """Text and graph → what is decided and found, before any backend has its say."""
    return _decide(source, model, targets, settings)[0]


def compile_policy(
    source: SourceFile, model: ModelGraph, backends: Sequence[Backend], settings: Settings = ASSUMED
) -> Compilation:
    """Text and graph → artifacts, each read back and compared."""
    decided, kept = _decide(source, model, [backend.name for backend in backends], settings)
    if decided.binding is None:
        return decided
    binding = replace(decided.binding, contract=settings.record(decided.binding.contract))
    findings, emissions = decided.findings, []
    for backend in backends:
        blocked = any(finding.is_error for finding in findings)
        emission, found = emit_contract(binding.contract, backend, kept, write=not blocked)
        emissions.append(emission)
        findings += found
    unused = kept.unused() if settings.complete else ()
    return Compilation(decided.policy, binding, tuple(emissions), ordered((*findings, *unused)))


def _decide(
    source: SourceFile, model: ModelGraph, targets: Sequence[str], settings: Settings
) -> tuple[Compilation, Ignores]:
    policy, findings = read_policy(source)
    kept = Ignores(policy.ignores, policy.source.path, model.name)
    findings = kept.filter(findings)
    if any(finding.is_error for finding in findings):
        return Compilation(policy, findings=findings), kept
    binding = settings.apply(bind(policy, model), tuple(targets))
    findings += kept.filter((*rules.check_binding(binding), *rules.check_contract(binding.contract)))
    return Compilation(policy, binding, findings=ordered(findings)), kept


def ordered(findings: Findings) -> Findings:
    """Findings by file and place; those without a place last."""
    return tuple(sorted(findings, key=_place))


def _place(finding: Diagnostic) -> tuple[str, int, str]:
    span = finding.span
    return ("\uffff", 0, finding.code) if span is None else (span.source.path, span.start, finding.code)


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
    compared = list(zip(contract.entries, wanted, readings, strict=True))
    agree = sum(entry.tensor.count for entry, decision, reading in compared if reading.decision == decision)
    findings = tuple(
        error(
            "P501",
            f"{backend.name} would run {entry.tensor.name} as {reading.decision}; the contract says {decision}",
            entry.span,
            help=f"the artifacts decide it in {reading.because}; the policy in {entry.cause}",
        )
        for entry, decision, reading in compared
        if reading.decision != decision
    )
    return Verification(sum(entry.tensor.count for entry in contract.entries), agree, findings)
