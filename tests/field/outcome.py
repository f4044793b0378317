"""What precc makes of a case: its findings, decisions, artifacts and what each target reads back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from field.cases import TARGETS, Case

from precc.backend import Backend, Reading, find_backend
from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc.front import read_policy
from precc.graph.config import describe
from precc.graph.errors import ModelError
from precc.graph.model import ModelGraph
from precc.graph.reading import read_model
from precc.graph.shrinking import shrink
from precc.pipeline import Compilation, Settings, compile_read
from precc.source import SourceFile


@dataclass(frozen=True, eq=False)
class Outcome:
    """One case compiled for all targets that its policy is for.

    `unread` is why the model of the case cannot be read; nothing is compiled then.
    """

    case: Case
    model: ModelGraph | None
    unread: str = ""
    _readings: dict[str, Sequence[Reading]] = field(default_factory=dict, repr=False)

    @cached_property
    def compilation(self) -> Compilation | None:
        """The compile for every target of the policy at once."""
        return self.compiled_for(self.targets) if self.model else None

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Those that the policy names, or all."""
        stated = read_policy(self._source)[0].targets
        return stated.names if stated else TARGETS

    def compiled_for(self, targets: Sequence[str]) -> Compilation:
        """The compile for some targets only."""
        assert self.model is not None, self.unread
        settings = Settings(train=self.case.words("train"), rollout=self.case.words("rollout"))
        return compile_read(read_policy(self._source), self.model, [_backend(name) for name in targets], settings)

    @property
    def _source(self) -> SourceFile:
        return SourceFile("case.prec", self.case.policy)

    @property
    def findings(self) -> Sequence[Diagnostic]:
        return self.compilation.findings if self.compilation else ()

    @property
    def grave(self) -> Sequence[Diagnostic]:
        """The findings that are more than information: a case has to name each."""
        return [finding for finding in self.findings if finding.severity is not Severity.INFO]

    @property
    def contract(self) -> Contract:
        assert self.compilation is not None, self.unread
        assert self.compilation.binding is not None, messages(self.findings)
        return self.compilation.binding.contract

    @cached_property
    def artifacts(self) -> Mapping[str, str]:
        """What is written, by path; nothing unless all targets compile."""
        if self.compilation is None or self.compilation.has_errors:
            return {}
        return {artifact.path: artifact.text for each in self.compilation.emissions for artifact in each.artifacts}

    def written_all_the_same(self, target: str) -> Mapping[str, str]:
        """What a target and the converter write of a policy that is refused."""
        written = [_backend(name).emit(self.contract) for name in (target, "converter")]
        return {artifact.path: artifact.text for artifacts in written for artifact in artifacts}

    def reading(self, target: str, tensor: str) -> Reading:
        """What a target's artifacts say of one tensor, by that engine's rules."""
        assert self.artifacts, messages(self.findings)
        if target not in self._readings:
            self._readings[target] = _backend(target).read_back(self.contract, self.artifacts)
        return self._readings[target][self.contract.entries.index(self.contract[tensor])]


def outcome_of(case: Case) -> Outcome:
    """This reads the case's model; what cannot be read is an outcome as well."""
    try:
        if case.config is not None:
            return Outcome(case, describe(case.config, "config.json").graph("inline"))
        graph = read_model(case.model)
        return Outcome(case, graph if case.layers is None else shrink(graph, case.layers).graph)
    except ModelError as problem:
        return Outcome(case, None, problem.message)


def messages(findings: Sequence[Diagnostic]) -> str:
    """Findings as a failing test shows them."""
    return "\n".join(f"{f.code} at line {f.span.line if f.span else '-'}: {f.message}" for f in findings)


@cache
def _backend(name: str) -> Backend:
    return find_backend(name)
