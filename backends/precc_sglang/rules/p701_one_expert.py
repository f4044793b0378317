"""SGLang: an expert layer has one method.

Gate, up and down of all experts of a layer are one module. The engine takes the method of the first expert that it
finds and does not see that another differs: that expert's bytes would be read in the wrong format.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
@routed_experts: mxfp8
experts.7: bf16
```

Decide whole layers:

```prec model=qwen3-30b-a3b
targets: sglang
@routed_experts: mxfp8
@routed_experts in layers[7]: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import Family
from precc_sglang.methods import choice_of
from precc_sglang.names import Module
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-expert-layer-has-one-method"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all weights that differ from the first of their expert layer."""
    choice = choice_of(contract)
    if choice is None:
        return
    first: dict[Module, Family | None] = {}
    apart = []
    for module, entry, family in choice.entries():
        if entry.tensor.experts is not None and first.setdefault(module, family) != family:
            apart.append(entry)
    yield from refuse(
        contract,
        CODE,
        apart,
        "runs all experts of a layer by one method, and this weight differs from others of its layer",
        "give `@routed_experts` of the layer one decision; except whole layers: `@routed_experts in layers[7]: bf16`",
    )
