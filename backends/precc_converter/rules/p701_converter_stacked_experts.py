"""A quantized parameter that is no weight and no stack of experts, or a stack with biases.

Low-precision formats are stored as a weight and its scales, under names that follow from the weight's. Some
architectures store all experts of a layer as one three-dimensional tensor (`experts.gate_up_proj`): the converter takes
it apart, in either order of its axes and with gate and up one after the other or in turn, and writes each expert's
weights under the names that servers ask with. The biases of gpt-oss's experts are stacked, too, with those of gate and
up in turn: no server knows names for them beside experts that stand one by one, so these experts are kept in BF16 or in
the MXFP4 that they are published in. Any other parameter that is not named
`weight` has no such names; the converter refuses to quantize it rather than to write names that load as nothing.

```prec expect=P701 model=gpt-oss-20b
@routed_experts: mxfp8
targets: converter
```

Leave these tensors in BF16, or leave the converter out of `targets:`:

```prec model=gpt-oss-20b
@attention: mxfp8
targets: converter
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc.graph.model import Tensor
from precc_converter.refusal import refuse
from precc_converter.written import keeps_stack, stack_of

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
    paths = {entry.tensor.path for entry in contract.entries}
    stacked = [entry for entry in contract.quantized() if entry.tensor.stacked and not keeps_stack(entry)]
    biased = [entry for entry in stacked if _bias(entry.tensor) in paths]
    if biased:
        yield refuse(
            biased,
            f"cannot write {biased[0].decision.weight.format} for experts with biases: these stay stacked beside them",
            help="leave these tensors in bf16, or leave `converter` out of `targets:`",
        )


def _bias(tensor: Tensor) -> tuple[str, ...]:
    """Where the biases of a stack stand."""
    *parents, last = tensor.path
    return (*parents, f"{last}_bias")
