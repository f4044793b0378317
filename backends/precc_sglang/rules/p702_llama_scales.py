"""SGLang: the Llama class loses the scales of MXFP8 and block FP8.

Its loader renames every `weight_scale_inv` to `weight_scale`, a parameter that these layers do not have. The weights
load, their scales stay as they were allocated, and the server starts.

```prec expect=P702 model=llama-3.1-8b
targets: sglang
default: mxfp8
```

Formats whose scales have another name load:

```prec model=llama-3.1-8b
targets: sglang
default: weight fp8 per_channel, input fp8 per_token, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_BLOCK, MXFP8
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse

CODE = "P702"
NAME = "sglang-llama-loses-block-scales"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all such weights of a class whose loader renames their scales."""
    choice = choice_of(contract)
    if choice is None or choice.built.block_scales_load:
        return
    lost = [entry for _, entry, family in choice.entries() if family in (MXFP8, FP8_BLOCK)]
    yield from refuse(
        contract,
        CODE,
        lost,
        f"does not load the scales of this format in {choice.built.name}",
        "use `weight fp8 per_channel, input fp8 per_token` or `weight nvfp4`",
    )
