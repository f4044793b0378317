"""SGLang: Mixtral's experts cannot be part of a mix.

Under every method but block FP8 and compressed-tensors, Mixtral is built with one dense layer for each expert, and
`modelopt_mixed` would need one entry for each. SGLang 0.5.16 has weight-only NVFP4 in a mix only.

```prec expect=P701 model=mixtral-8x7b
targets: sglang
default: mxfp8
@attention: fp8_block
```

One format for the model:

```prec model=mixtral-8x7b
targets: sglang
default: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc.graph.model import EXPERT
from precc_sglang.families import UNQUANTIZED
from precc_sglang.methods import MIXED, choice_of, choose, quantized_families
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse
from precc_sglang.versions import version_that

CODE = "P701"
NAME = "sglang-mixtral-in-a-mix"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all quantized experts that a mix would have to name one by one."""
    choice = choice_of(contract)
    if choice is None or choice.method != MIXED:
        return
    unfused = [
        entry
        for module, entry, family in choice.entries(Kind.LINEAR)
        if EXPERT in module.prefix and family is not UNQUANTIZED
    ]
    yield from refuse(
        contract,
        CODE,
        unfused,
        "builds one layer for each of Mixtral's experts in a mix of formats",
        _instead(contract),
    )


def _instead(contract: Contract) -> str:
    families = quantized_families(contract.entries)
    version = version_that(lambda release: choose(families, release) not in (MIXED, None))
    return "use one quantized format for this model" + (f", or write `rollout: sglang={version}`" if version else "")
