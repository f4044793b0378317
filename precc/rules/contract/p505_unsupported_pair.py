"""The rollout and training formats are no supported pair.

A served format without a training counterpart makes the sampler's policy another one than the trainer's. The pairs
that exist are: the same format on both sides (fp8, fp8_block, mxfp8, nvfp4); a quantized weight with a BF16 trainer,
which drifts and is corrected outside (importance sampling); and int4 weights with a trainer that fakes the rounding.

`train bf16` says that the drift is meant, and is a warning. Without it, a format that no trainer runs is an error.

```prec expect=P505 model=qwen3-30b-a3b
@routed_experts: weight int4 group 32
```

Say what the trainer does:

```prec model=qwen3-30b-a3b
@routed_experts: weight int4 group 32, train fake_quant
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, error, warning
from precc.formats import Decision
from precc.records import replace

CODE = "P505"
NAME = "unsupported-pair"
SEVERITY = Severity.ERROR

TRAINED = frozenset({"fp8", "fp8_block", "mxfp8", "nvfp4"})
"""Formats that TransformerEngine multiplies in."""


def check(contract: Contract) -> Iterator[Diagnostic]:
    """Every served format, once a rule; silent where nothing is trained."""
    if not contract.runs("te"):
        return
    found: dict[tuple[object, object, Decision], list[Entry]] = {}
    for entry in contract.quantized():
        if entry.decision.train != "fake_quant" and not _is_pair(entry.decision):
            found.setdefault((entry.span_of("train"), entry.span_of("input"), entry.decision), []).append(entry)
    for entries in found.values():
        yield _finding(entries)


def _is_pair(decision: Decision) -> bool:
    operand = decision.input
    if decision.train == "bf16" or operand is None:
        return decision.train is None
    return decision.weight.format == operand.format and operand.format in TRAINED and not operand.static


def _finding(entries: list[Entry]) -> Diagnostic:
    first = entries[0]
    if first.decision.train == "bf16":
        served = replace(first.decision, train=None)
        return warning(
            CODE,
            f"{folded_names(entries)} are served as {served} and trained in bf16: "
            "the sampler's policy drifts from the trainer's",
            first.span_of("train"),
            help="pairs without drift: the same format on both sides, or int4 with `train fake_quant`; "
            "silence this if the drift is corrected",
        )
    return error(
        CODE,
        f"{folded_names(entries)}: no trainer multiplies {_operands(first.decision)}",
        first.span_of("input"),
        help="add `train bf16` (a deliberate drift), `train fake_quant` for int4, or leave the trainer out: "
        "`targets: sglang, converter`",
    )


def _operands(decision: Decision) -> str:
    if decision.input is None or decision.input == decision.weight:
        return str(decision.weight)
    return f"{decision.weight} weights with {decision.input} inputs"
