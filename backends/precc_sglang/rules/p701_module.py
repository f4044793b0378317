"""SGLang: this module is never quantized.

Embeddings, routers, expert gates, the MTP's `eh_proj` and the indexer's `weights_proj` are built without a
quantization config: their weights are read as BF16 whatever the config says. An LM head takes ModelOpt's formats
(weight-only NVFP4; NVFP4 and FP8 with static input scales) and nothing else, and not at all where it is tied to the
embedding or in Mixtral. Nemotron-H's `eh_proj` is built with a config.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
default: mxfp8
lm_head: mxfp8
```

Leave it in BF16, as it is unless a rule names it:

```prec model=qwen3-30b-a3b
targets: sglang
default: mxfp8
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

CODE = "P701"
NAME = "sglang-module-is-never-quantized"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for what never asks, one for LM heads in a format they cannot take."""
    choice = choice_of(contract)
    if choice is None:
        return
    never = [entry for _, entry, family in choice.entries(Kind.NEVER) if family not in (None, UNQUANTIZED)]
    yield from refuse(contract, CODE, never, "builds this module without a quantization config", "leave it in `bf16`")
    heads = [entry for _, entry, family in choice.entries(Kind.HEAD) if family is not None and not family.head]
    yield from refuse(
        contract,
        CODE,
        heads,
        "cannot quantize an LM head in this format",
        "leave it in `bf16`, or write `weight nvfp4` for it in a policy of ModelOpt formats",
    )
