"""SGLang: these weights are joined after loading, and their scales are left behind.

Kimi-K3's delta attention multiplies `f_a_proj` and `b_proj` in one small GEMM, and `f_b_proj` behind it. The class
builds a layer for each, loads it as its method wants, and then joins the weights as they are: codes would be multiplied
as if they were numbers. All published checkpoints keep these in BF16, and only their own names reach them.

```prec expect=P702 model=kimi-k3
targets: sglang
@linear_attention: mxfp8
f_b_proj: mxfp8
```

The wide projections are served:

```prec model=kimi-k3
targets: sglang
@linear_attention: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import UNQUANTIZED
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse

CODE = "P702"
NAME = "sglang-joined-weights"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all quantized weights that a class joins."""
    choice = choice_of(contract)
    if choice is None:
        return
    joined = [
        entry
        for module, entry, family in choice.entries(Kind.LINEAR)
        if module.last in choice.built.joins and family not in (None, UNQUANTIZED)
    ]
    yield from refuse(
        contract, CODE, joined, "joins these weights after loading, without their scales", "leave them in `bf16`"
    )
