"""SGLang: the model's class is not modelled.

Which names a quantization config must use is a fact of SGLang's class for the model. precc knows those that
the message lists.

Compile for the other targets only:

```prec model=qwen3-30b-a3b
targets: converter
@routed_experts: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.emission import unknown_architecture
from precc_sglang.methods import choice_of

CODE = "P701"
NAME = "sglang-class-not-modelled"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for a model that no class is known for."""
    if choice_of(contract) is None:
        yield unknown_architecture(contract)
