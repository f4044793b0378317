"""SGLang: a scale of several projections that one tensor holds fills the first one's place only.

Qwen3-Next stores the input projections of a gated delta net joined (`in_proj_qkvz`, `in_proj_ba`), and SGLang holds
them as one layer with a place for the scale of each. Its loader puts a per-tensor scale (the outer scale of NVFP4, or
that of static FP8) into the first place; the others keep what they were allocated with, and the largest is used.

```prec expect=P702 model=qwen3-next-80b-a3b
targets: sglang
@linear_attention: weight nvfp4, input bf16, train bf16
```

The input projection of a Mamba-2 mixer is such a layer too. There ModelOpt's methods for NVFP4 and FP8 with quantized
inputs fill every place, and weight-only NVFP4 does not.

MXFP8 and block FP8 have no such scale. Qwen3.5 stores the projections apart, and their scales find their places:

```prec model=qwen3.5-35b-a3b
targets: sglang
@linear_attention: weight nvfp4, input bf16, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_TENSOR, NVFP4_WEIGHTS, is_w4a4
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse

CODE = "P702"
NAME = "sglang-scale-of-joined-projections"
SEVERITY = Severity.ERROR

JOINED = frozenset({"qkvz", "ba"})
"""The parts of tensors that SGLang loads whole into a layer of several outputs."""

JOINED_IN_MAMBA = "in"
"""The one whose scale goes into every place, but for weight-only NVFP4."""


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all joined projections with a scale of their own."""
    choice = choice_of(contract)
    if choice is None:
        return
    joined = [
        entry
        for _, entry, family in choice.entries(Kind.LINEAR)
        if (entry.tensor.part in JOINED and (family in (FP8_TENSOR, NVFP4_WEIGHTS) or is_w4a4(family)))
        or (entry.tensor.part == JOINED_IN_MAMBA and family is NVFP4_WEIGHTS)
    ]
    yield from refuse(
        contract,
        CODE,
        joined,
        "loads the scale of these joined projections into the place of the first alone",
        "write `mxfp8` or `bf16` for them",
    )
