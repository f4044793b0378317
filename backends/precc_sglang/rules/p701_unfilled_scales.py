"""SGLang: this class does not start with a parameter that no tensor fills.

ModelOpt's methods hold a scale of inputs whether or not one is stored. Loaders leave it as it was allocated, and
nothing reads it where inputs are not quantized or have a scale for each token. The loader of Step-3.7 stops.

```prec expect=P701 model=step-3.7-flash
targets: sglang
@routed_experts: nvfp4 per_token
```

With a scale that is stored it loads:

```prec model=step-3.7-flash
targets: sglang
@routed_experts: weight nvfp4 per_tensor, input nvfp4 per_tensor static, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import NVFP4_TOKEN, NVFP4_WEIGHTS
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-unfilled-scales"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all weights beside which no scale of inputs is stored, in a class that waits for one."""
    choice = choice_of(contract)
    if choice is None or not choice.built.fills_all:
        return
    yield from refuse(
        contract,
        CODE,
        [entry for _, entry, family in choice.entries() if family in (NVFP4_TOKEN, NVFP4_WEIGHTS)],
        f"does not start {choice.built.name} without the input scales of these weights",
        "write `mxfp8` or `fp8_block`, or NVFP4 with `input nvfp4 per_tensor static, train bf16`",
    )
