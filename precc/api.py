"""The compiler as a library: a policy and a model in, a contract and artifacts out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from precc.backend import Artifact, find_backend
from precc.contract import Contract
from precc.diagnostics import Diagnostic
from precc.graph.reading import read_model
from precc.pipeline import compile_policy, emit_contract
from precc.resolve.extends import shipped_policies
from precc.source import SourceFile
from precc.syntax import read_source


class PolicyError(Exception):
    """A policy that does not compile; `findings` says why, as `precc lint --model` would."""

    def __init__(self, findings: Sequence[Diagnostic]) -> None:
        self.findings = tuple(findings)
        super().__init__("; ".join(f"{f.code} {f.message}" for f in self.findings if f.is_error))


def compile(policy: str | Path, model: str | Path, targets: Sequence[str] = ()) -> Contract:
    """This compiles a policy file, or a ready policy by its name.

    The model is a catalogue name, a `config.json` or a checkpoint folder.

    The artifacts of `targets` are emitted and read back as a check; `emit` returns them. Raises PolicyError, and
    ModelError for a model that cannot be read.
    """
    source = read_source(_policy_path(policy))
    if isinstance(source, Diagnostic):
        raise PolicyError([source])
    return compile_source(source, str(model), targets)


def _policy_path(policy: str | Path) -> Path:
    ready = shipped_policies() / f"{policy}.prec"
    return ready if not Path(policy).exists() and ready.is_file() else Path(policy)


def compile_source(source: SourceFile, model: str, targets: Sequence[str] = ()) -> Contract:
    """This compiles policy text that is in memory already. Raises as `compile` does."""
    backends = [find_backend(name) for name in targets]
    done = compile_policy(source, read_model(model), backends)
    if done.binding is None or done.has_errors:
        raise PolicyError(done.findings)
    return done.binding.contract


def emit(contract: Contract, target: str) -> tuple[Artifact, ...]:
    """This writes a contract for one target, in memory, after reading it back. Raises PolicyError on a refusal."""
    emission, findings = emit_contract(contract, find_backend(target))
    if any(finding.is_error for finding in findings):
        raise PolicyError(findings)
    return emission.artifacts
