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
from precc.graph.model import Tensor

CODE = "P301"
NAME = "block-does-not-divide"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """Every quantized weight; equal shapes under one rule are one finding."""
    found: dict[tuple[object, tuple[int, ...], tuple[int, int]], list[Entry]] = {}
    rows = _rows_trained_together(contract)
    for entry in contract.quantized():
        problem = indivisible(entry, rows.get(_trained_in(entry.tensor), 0))
        if problem is not None:
            found.setdefault((entry.cause, entry.tensor.shape, problem), []).append(entry)
    for (_, _, problem), entries in found.items():
        yield _finding(entries, problem)


def _trained_in(tensor: Tensor) -> str:
    """The one linear layer that a trainer multiplies a weight in with others; empty for none."""
    return dict(tensor.fused).get("megatron", "") if tensor.experts is None and len(tensor.shape) == 2 else ""


def _rows_trained_together(contract: Contract) -> dict[str, int]:
    """The rows of each fused linear layer, along which a native backward pass contracts."""
    rows: dict[str, int] = {}
    for tensor in contract.tensors:
        name = _trained_in(tensor)
        if name:
            rows[name] = rows.get(name, 0) + tensor.shape[0]
    return rows


def indivisible(entry: Entry, fused: int = 0) -> tuple[int, int] | None:
    """The dimension that some block of the decision does not divide, with the block; None if all divide.

    `fused` are the rows of the linear layer that the trainer multiplies it in, 0 for its own.
    """
    tensor, decision = entry.tensor, entry.decision
    if not tensor.contracted:
        return None
    operands = [decision.weight] + ([decision.input] if decision.input is not None else [])
    wide = max((operand.block[1] for operand in operands if operand.block is not None), default=1)
    contracted = tensor.shape[tensor.contraction]
    if contracted % wide:
        return contracted, wide
    if decision.backward == "native" and decision.weight.block is not None and decision.weight.block[0] == 1:
        rows = fused or next((size for axis, size in enumerate(tensor.shape) if axis != tensor.contraction), 1)
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
