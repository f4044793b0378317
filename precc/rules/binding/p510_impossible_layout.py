"""A layout cannot be run.

What a layout does to blocks and scales is worked out from its sizes, so they must be sizes that an engine accepts:
experts and attention ranks divide the ranks they share, ranks divide the experts and the attention heads, virtual
stages need pipeline stages, and in SGLang the ranks that share one expert are tp / ep.

```prec expect=P510 model=qwen3-30b-a3b
@routed_experts: mxfp8
rollout: tp=8 ep=3
```

```prec model=qwen3-30b-a3b
@routed_experts: mxfp8
rollout: tp=8 ep=4
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc.resolve.bind import Binding
from precc.source import Span
from precc.syntax.ast import Layout

CODE = "P510"
NAME = "impossible-layout"
SEVERITY = Severity.ERROR


class _Problem(NamedTuple):
    """The setting that is wrong, its size, and why."""

    key: str
    size: int
    why: str


def check(binding: Binding) -> Iterator[Diagnostic]:
    """The sides that are asked for."""
    contract, policy = binding.contract, binding.policy
    sides = (
        ("te", "training", train_problems(contract), policy.train),
        ("sglang", "rollout", rollout_problems(contract), policy.rollout),
    )
    for target, side, problems, lines in sides:
        for problem in problems if contract.runs(target) else ():
            yield error(
                CODE,
                f"this {side} layout cannot be run: {problem.why}",
                _span(problem, lines),
                help="state the sizes that you launch with",
            )


def _span(problem: _Problem, lines: tuple[Layout, ...]) -> Span | None:
    """Where the size is stated, unless the command line states it."""
    stated = [setting for line in lines for setting in line.settings if setting.key == problem.key]
    return stated[-1].span if stated and stated[-1].value == str(problem.size) else None


def train_problems(contract: Contract) -> Iterator[_Problem]:
    """The sizes of a trainer that cannot be."""
    train = contract.train
    yield from _divides("tp", train.tp, "attention heads", _heads(contract))
    yield from _divides("ep", train.ep, "routed experts", contract.model.expert_count or None)
    if train.vpp > 1 and train.pp == 1:
        yield _Problem("vpp", train.vpp, f"vpp={train.vpp} needs more than one pipeline stage (pp)")
    if train.pp * train.vpp > contract.model.layers:
        why = f"pp={train.pp} and vpp={train.vpp} make more stages than the {contract.model.layers} layers"
        yield _Problem("pp", train.pp, why)


def rollout_problems(contract: Contract) -> Iterator[_Problem]:
    """The sizes of a rollout server that cannot be."""
    rollout = contract.rollout
    yield from _divides("ep", rollout.ep, "ranks (tp)", rollout.tp)
    yield from _divides("dp", rollout.dp, "ranks (tp)", rollout.tp)
    if rollout.tp % rollout.dp == 0 and _heads(contract) % rollout.attention_tp:
        why = f"tp / dp = {rollout.attention_tp} does not divide the {_heads(contract)} attention heads"
        yield _Problem("tp", rollout.tp, why)
    yield from _divides("ep", rollout.ep, "routed experts", contract.model.expert_count or None)
    if rollout.etp and rollout.etp * rollout.ep != rollout.tp:
        why = f"etp={rollout.etp}, and SGLang splits an expert over tp / ep = {rollout.tp / rollout.ep:g} ranks"
        yield _Problem("etp", rollout.etp, why)


def _heads(contract: Contract) -> int:
    heads = contract.model.config["num_attention_heads"]
    assert isinstance(heads, int)
    return heads


def _divides(key: str, size: int, what: str, whole: int | None) -> Iterator[_Problem]:
    if whole is not None and whole % size:
        yield _Problem(key, size, f"{key}={size} does not divide the {whole} {what}")
