"""SGLang: the indexer's `wk` is fused with `weights_proj` in BF16.

On a GPU the two are one BF16 module. A block-FP8 `wk` is dequantized into it; of an MXFP8 one the scale bytes are
multiplied as integers, and the attention selects the wrong tokens.

```prec expect=P702 model=deepseek-v3.2
targets: sglang
default: mxfp8
kv_b_proj: bf16
```

Keep it in BF16:

```prec model=deepseek-v3.2
targets: sglang
default: mxfp8
kv_b_proj, indexer.wk: bf16
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
NAME = "sglang-indexer-keys-are-bf16"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all quantized `wk` of indexers."""
    choice = choice_of(contract)
    if choice is None:
        return
    keys = [
        entry
        for _, entry, family in choice.entries(Kind.NEVER)
        if entry.tensor.path[-1] == "wk" and family is not UNQUANTIZED
    ]
    yield from refuse(
        contract,
        CODE,
        keys,
        "loads the indexer's `wk` into a BF16 module",
        "write `indexer.wk: bf16`, or `@indexer: bf16`",
    )
