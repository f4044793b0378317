"""The contraction dimension is not a multiple of the block.

Blocks run along the axis that the matrix multiplication sums over, and engines refuse, pad or silently skip a weight
whose dimension they do not divide. A trainer with a native backward pass contracts along the other axis too.

```prec expect=P301 model=deepseek-v2-lite
default: fp8_block
```

Keep the weights that do not divide, or take a format with smaller blocks:

```prec model=deepseek-v2-lite
default: fp8_block
@dense_mlp, @mla: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, error
from precc.formats import FORMATS

CODE = "P301"
NAME = "block-does-not-divide"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """Every quantized weight; equal shapes under one rule are one finding."""
    found: dict[tuple[object, tuple[int, ...], tuple[int, int]], list[Entry]] = {}
    for entry in contract.quantized():
        problem = indivisible(entry)
        if problem is not None:
            found.setdefault((entry.cause, entry.tensor.shape, problem), []).append(entry)
    for (_, _, problem), entries in found.items():
        yield _finding(entries, problem)


def indivisible(entry: Entry) -> tuple[int, int] | None:
    """The dimension that some block of the decision does not divide, with the block; None if all divide."""
    tensor, decision = entry.tensor, entry.decision
    if not tensor.contracted:
        return None
    operands = [decision.weight] + ([decision.input] if decision.input is not None else [])
    wide = max((operand.block[1] for operand in operands if operand.block is not None), default=1)
    contracted = tensor.shape[tensor.contraction]
    if contracted % wide:
        return contracted, wide
    if decision.backward == "native" and decision.weight.block is not None and decision.weight.block[0] == 1:
        rows = next((size for axis, size in enumerate(tensor.shape) if axis != tensor.contraction), 1)
        if len(tensor.shape) == 2 and rows % wide:
            return rows, wide
    return None


def _finding(entries: list[Entry], problem: tuple[int, int]) -> Diagnostic:
    size, block = problem
    first = entries[0]
    smaller = [
        name
        for name, form in FORMATS.items()
        if form.is_quantized and not form.weight_only and size % (form.weight_block or (1, 1))[1] == 0
    ]
    shape = " × ".join(map(str, first.tensor.shape))
    return error(
        CODE,
        f"{folded_names(entries)} [{shape}]: {size} is not a multiple of the {block}-element block of "
        f"{first.decision.weight.format}",
        first.span,
        help=f"keep them in bf16, or use a format that divides {size}: {', '.join(smaller) or 'none does'}",
    )
