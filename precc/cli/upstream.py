"""`--upstream`: the installed engines' own code judges artifacts. What `verify` and `compile` share."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from precc.backend import EngineUnavailable, Judged, Judgement, Unsupported
from precc.diagnostics import Diagnostic

if TYPE_CHECKING:
    from precc.backend import Backend
    from precc.cli.arguments import ArgumentParser
    from precc.contract import Contract

ENGINES = {
    "megatron_core": "megatron-core",
    "te": "transformer-engine",
    "flashinfer": "flashinfer",
}
"""What engines are called that a policy spells otherwise."""


@dataclass
class Upstream:
    """What the engines said, by target: a judgement, or why there is none. `findings` are those of all judgements."""

    judgements: dict[str, Judgement] = field(default_factory=dict)
    unjudged: dict[str, EngineUnavailable] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)

    @property
    def status(self) -> int:
        """2 where an engine could not judge, else 1 where one decides otherwise or stops, else 0."""
        return 2 if self.unjudged else int(bool(self.findings))


def add_upstream(parser: ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--upstream",
        action="store_true",
        help="also ask the installed engines' own code, for each target that has one; exit with 2 if one is missing",
    )


def judge(contract: Contract, backends: Sequence[Backend], artifacts: Mapping[str, str]) -> Upstream:
    """This asks each target's engine about the artifacts of all targets (path → text)."""
    found = Upstream()
    for backend in backends:
        if not hasattr(backend, "upstream"):
            found.without.append(backend.name)
            continue
        try:
            judgement = cast(Judged, backend).upstream(contract, artifacts)
        except EngineUnavailable as problem:
            found.unjudged[backend.name] = problem
        except Unsupported as refusal:
            found.findings += refusal.findings
        else:
            found.judgements[backend.name] = judgement
            found.findings += judgement.findings
    return found


def print_upstream(found: Upstream) -> None:
    """A line a target, with what was run below it; on the error stream what to install for those not judged."""
    for name, judgement in found.judgements.items():
        print(f"{name}: {sentence(judgement)}")
        for check in judgement.checks:
            print(f"  {check}")
    for name in found.without:
        print(f"{name}: no engine of its own; the other targets' engines load what it writes")
    complain(found)


def complain(found: Upstream) -> None:
    """What is missing, and what to install, on the error stream."""
    for name, problem in found.unjudged.items():
        print(f"precc: {name}: no engine judged it: {problem}; {problem.help}", file=sys.stderr)


def sentence(judgement: Judgement) -> str:
    """`megatron-core 0.16.1 and transformer-engine 2.20.2 run 37,248 of 37,248 tensors as the contract says`."""
    from precc.contract.wording import listed

    engines = [f"{ENGINES.get(engine, engine)} {version}" for engine, version in judgement.engines.items()]
    verb = "run" if len(engines) > 1 else "runs"
    return f"{listed(engines)} {verb} {judgement.agree:,} of {judgement.tensors:,} tensors as the contract says"


def upstream_to_json(found: Upstream) -> dict[str, Any]:
    """Each target's judgement, `{unavailable, help}`, or null where there is no engine to ask."""
    judged = {
        name: {"engines": dict(j.engines), "tensors": j.tensors, "agree": j.agree, "checks": list(j.checks)}
        for name, j in found.judgements.items()
    }
    unjudged = {name: {"unavailable": str(problem), "help": problem.help} for name, problem in found.unjudged.items()}
    return {**judged, **unjudged, **dict.fromkeys(found.without)}
