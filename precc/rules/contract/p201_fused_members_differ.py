"""Members of one fused GEMM are decided differently.

Engines run some weights as one matrix multiplication: q, k and v; gate and up; all experts of a layer. One kernel has
one precision, so their decisions must be equal. SGLang's fused expert kernel has one method for gate, up and down of
all experts of a layer; Megatron-Core's grouped linear one recipe for all experts on a rank.

```prec expect=P201 model=qwen3-30b-a3b
q_proj: mxfp8
```

Decide the members together:

```prec model=qwen3-30b-a3b
{q,k,v}_proj: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import folded_names, listed
from precc.diagnostics import Diagnostic, Label, Severity, error
from precc.formats import Decision
from precc.graph.model import Engine

CODE = "P201"
NAME = "fused-members-differ"
SEVERITY = Severity.ERROR

_ENGINES: tuple[tuple[str, Engine, str], ...] = (
    ("te", "megatron", "Megatron-Core"),
    ("sglang", "sglang", "SGLang"),
)


_Pairs = list[tuple[Entry, Entry]]


def check(contract: Contract) -> Iterator[Diagnostic]:
    """Every fused GEMM of every engine that is asked for. Layers, and engines, with the same conflict are one."""
    conflicts: dict[tuple[object, object], tuple[list[str], _Pairs]] = {}
    for target, engine, title in _ENGINES:
        if contract.runs(target):
            for causes, pairs in _conflicts(contract, engine).items():
                titles, _ = conflicts.setdefault(causes, ([], pairs))
                titles.append(title)
    for titles, pairs in conflicts.values():
        yield _finding(pairs, titles)


def _conflicts(contract: Contract, engine: Engine) -> dict[tuple[object, object], _Pairs]:
    """The two rules that meet in one GEMM → the members that differ, one pair a GEMM."""
    found: dict[tuple[object, object], _Pairs] = {}
    for members in fused_groups(contract, engine).values():
        first = members[0]
        for other in members[1:]:
            if _seen_by(engine, other.decision) != _seen_by(engine, first.decision):
                found.setdefault((first.cause, other.cause), []).append((first, other))
                break
    return found


def fused_groups(contract: Contract, engine: Engine) -> dict[str, list[Entry]]:
    """The GEMMs that an engine runs fused: their id → the entries that are part of them."""
    groups: dict[str, list[Entry]] = {}
    for entry in contract.entries:
        for fusing, group in entry.tensor.fused:
            if fusing == engine:
                groups.setdefault(group, []).append(entry)
    return groups


def _seen_by(engine: Engine, decision: Decision) -> object:
    """The part of a decision that the engine runs: a server knows no backward mode."""
    if engine == "sglang":
        return decision.weight, decision.input
    if not decision.trains_quantized:
        return decision.train
    return decision


def _finding(pairs: _Pairs, titles: list[str]) -> Diagnostic:
    first, other = pairs[0]
    runs = "run" if len(titles) > 1 else "runs"
    spans = sorted((entry.span for entry in (first, other) if entry.span is not None), key=lambda span: span.start)
    return error(
        CODE,
        f"{listed(titles)} {runs} {folded_names([pair[0] for pair in pairs])} and "
        f"{folded_names([pair[1] for pair in pairs])} as one GEMM: {first.decision} against {other.decision}",
        spans[-1] if spans else None,
        labels=tuple(Label(span, "the other is decided here") for span in spans[:-1]),
        help="give all members of a fused GEMM one decision, for example `{q,k,v}_proj` or `@routed_experts`",
    )
