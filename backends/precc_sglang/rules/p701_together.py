"""SGLang: these formats cannot stand in one checkpoint.

The one method that mixes formats, `modelopt_mixed`, knows MXFP8, FP8 in blocks, static per-tensor FP8, NVFP4 and
weight-only NVFP4. INT4 and per-channel FP8 have a method of their own, beside unquantized tensors only; an algorithm
that a mix does not know would be served unquantized without a word.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
@routed_experts: weight int4 group 32, train fake_quant
@attention: mxfp8
```

Leave the rest unquantized:

```prec model=qwen3-30b-a3b
targets: sglang
@routed_experts: weight int4 group 32, train fake_quant
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import MIXABLE, family_of
from precc_sglang.methods import choose, quantized_families
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-formats-not-together"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding at the first tensor whose format does not mix."""
    families = quantized_families(contract.entries)
    if choose(families) is not None:
        return
    alone = [entry for entry in contract.quantized() if family_of(entry.decision) in families - MIXABLE]
    others = ", ".join(sorted({family.title for family in families}))
    yield from refuse(
        contract,
        CODE,
        alone,
        f"has no method for {others} in one model",
        "INT4 (with one group size) and per-channel FP8 stand alone: write `bf16` for the others, or one of MXFP8, "
        "block FP8 and NVFP4 for this",
    )
