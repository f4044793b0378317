"""TransformerEngine has no linear layer that runs as decided.

It quantizes both operands of its own linear layers: not of the router, the embedding or the output layer. Its FP8 has
one scale a tensor, its block FP8 one type of scale for both operands, and its NVFP4 excludes some settings beside
others. What no trainer multiplies at all (integers, weight-only formats, static input scales, operands of two formats)
is P505.

```prec expect=P701 model=qwen3-30b-a3b
lm_head: mxfp8
targets: te
```

Say that the trainer's forward is another, or leave the trainer out of `targets:`.

```prec model=qwen3-30b-a3b
lm_head: mxfp8, train bf16
targets: te
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_te.modules import modules_of

CODE = "P701"
NAME = "te-untrainable"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding a reason, but those that precc's own rules report."""
    modules = modules_of(contract)
    for why in modules.refused:
        if not why.reported:
            yield modules.refusal(why)
