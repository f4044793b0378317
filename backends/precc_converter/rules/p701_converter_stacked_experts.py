"""A quantized parameter that is no weight and no stack of experts.

Low-precision formats are stored as a weight and its scales, under names that follow from the weight's. Some
architectures store all experts of a layer as one three-dimensional tensor (`experts.gate_up_proj`): the converter takes
it apart, in either order of its axes and with gate and up one after the other or in turn, and writes each expert's
weights under the names that servers ask with. Any other parameter that is not named `weight` has no such names; the
converter refuses to quantize it rather than to write names that load as nothing.

Leave these tensors in BF16, or leave the converter out of `targets:`.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_converter.refusal import refuse
from precc_converter.written import stack_of

CODE = "P701"
NAME = "converter-stacked-experts"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding over all quantized parameters that have no `weight` of their own and stack no experts."""
    bare = [
        entry
        for entry in contract.entries
        if entry.decision.weight.is_quantized and entry.tensor.parameter != "weight" and stack_of(entry.tensor) is None
    ]
    if bare:
        yield refuse(
            bare,
            f"cannot write {bare[0].decision.weight.format} for a parameter that is not named `weight`",
            help="leave these tensors in bf16, or leave `converter` out of `targets:`",
        )
