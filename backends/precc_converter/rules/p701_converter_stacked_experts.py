"""Experts stacked in one tensor.

Some architectures store all experts of a layer as one three-dimensional tensor (`experts.gate_up_proj`). Its
low-precision form has a different name, layout and interleaving in every family, and servers read only that of the
family they know. The converter leaves such tensors in 16 bits or more; it refuses to quantize them rather than to
write names that load as nothing.

Leave these tensors in BF16 (`@routed_experts: bf16`), or leave the converter out of `targets:`.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_converter.refusal import refuse

CODE = "P701"
NAME = "converter-stacked-experts"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding over all quantized parameters that have no `weight` of their own."""
    bare = [e for e in contract.entries if e.decision.weight.is_quantized and e.tensor.parameter != "weight"]
    if bare:
        yield refuse(
            bare,
            f"cannot write {bare[0].decision.weight.format} for a parameter that is not named `weight`",
            help="leave these tensors in bf16, or leave `converter` out of `targets:`",
        )
