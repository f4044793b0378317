"""SGLang: the indexer's `wk` is fused with `weights_proj` in BF16.

Where the indexer's rotary embedding is interleaved (`indexer_rope_interleave`, as in GLM-5), the two are one BF16
module on a GPU. A block-FP8 `wk` is dequantized into it; of an MXFP8 one the scale bytes are multiplied as integers,
and the attention selects the wrong tokens.

```prec expect=P702 model=glm-5
targets: sglang
default: mxfp8
kv_b_proj: bf16
```

Keep it in BF16:

```prec model=glm-5
targets: sglang
default: mxfp8
kv_b_proj, indexer.wk: bf16
```

DeepSeek-V3.2's is a linear layer like others:

```prec model=deepseek-v3.2
targets: sglang
default: mxfp8
kv_b_proj: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc.syntax.words import Role
from precc_sglang.families import UNQUANTIZED
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse

CODE = "P702"
NAME = "sglang-indexer-keys-are-bf16"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all quantized `wk` of indexers that are fused."""
    choice = choice_of(contract)
    if choice is None or not choice.built.fuses_indexer_keys:
        return
    keys = [
        entry
        for _, entry, family in choice.entries()
        if entry.tensor.role is Role.INDEXER and entry.tensor.part == "wk" and family is not UNQUANTIZED
    ]
    yield from refuse(
        contract,
        CODE,
        keys,
        "loads the indexer's `wk` into a BF16 module",
        "write `indexer.wk: bf16`, or `@indexer: bf16`",
    )
