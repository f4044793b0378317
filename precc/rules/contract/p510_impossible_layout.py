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

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error

CODE = "P510"
NAME = "impossible-layout"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """The sides that are asked for."""
    if contract.wants("te"):
        for problem in _train(contract):
            yield error(CODE, f"this training layout cannot be run: {problem}", help="state the sizes you launch with")
    if contract.wants("sglang"):
        for problem in _rollout(contract):
            yield error(CODE, f"this rollout layout cannot be run: {problem}", help="state the sizes you launch with")


def _train(contract: Contract) -> Iterator[str]:
    train = contract.train
    yield from _divides("tp", train.tp, "attention heads", _heads(contract))
    yield from _divides("ep", train.ep, "routed experts", contract.model.expert_count or None)
    if train.vpp > 1 and train.pp == 1:
        yield f"vpp={train.vpp} needs more than one pipeline stage (pp)"
    if train.pp * train.vpp > contract.model.layers:
        yield f"pp={train.pp} and vpp={train.vpp} make more stages than the {contract.model.layers} layers"


def _rollout(contract: Contract) -> Iterator[str]:
    rollout = contract.rollout
    yield from _divides("ep", rollout.ep, "ranks (tp)", rollout.tp)
    yield from _divides("dp", rollout.dp, "ranks (tp)", rollout.tp)
    yield from _divides("tp / dp", rollout.attention_tp, "attention heads", _heads(contract))
    yield from _divides("ep", rollout.ep, "routed experts", contract.model.expert_count or None)
    if rollout.etp and rollout.etp != max(1, rollout.tp // rollout.ep):
        yield f"etp={rollout.etp}, and SGLang splits an expert over tp / ep = {rollout.tp / rollout.ep:g} ranks"


def _heads(contract: Contract) -> object:
    return contract.model.config.get("num_attention_heads")


def _divides(key: str, size: int, what: str, whole: object) -> Iterator[str]:
    if isinstance(whole, int) and whole % size:
        yield f"{key}={size} does not divide the {whole} {what}"
