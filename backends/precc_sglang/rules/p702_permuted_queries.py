"""SGLang: the Llama 4 class reorders queries and keys, and leaves their scales where they were.

Its loader turns the rows of `q_proj` and `k_proj` from one rotary layout into the other. It does so with the weight and
with nothing beside it: scales of single rows (MXFP8, INT4, FP8 a channel, NVFP4) then belong to other rows, and
four-bit weights have not the shape that it wants. Blocks of 128×128 hold whole heads of 128 rows, so block FP8 is
served.

```prec expect=P702 model=llama-4-scout
targets: sglang
@attention: mxfp8
```

One scale for all rows that are reordered, or none:

```prec model=llama-4-scout
targets: sglang
@attention: fp8_block
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_BLOCK, FP8_TENSOR, UNQUANTIZED, Family
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse

CODE = "P702"
NAME = "sglang-permuted-queries"
SEVERITY = Severity.ERROR

REORDERED = frozenset({"q", "k"})
ROWS = 128
"""The rows that share a scale in block FP8."""


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all queries and keys whose scales would belong to other rows."""
    choice = choice_of(contract)
    if choice is None or not choice.built.permutes_queries:
        return
    whole_heads = contract.model.config["head_dim"] % ROWS == 0
    apart = [
        entry
        for _, entry, family in choice.entries(Kind.LINEAR)
        if entry.tensor.part in REORDERED and family is not None and not _moves_as_one(family, whole_heads)
    ]
    yield from refuse(
        contract,
        CODE,
        apart,
        "reorders the rows of queries and keys without the scales of this format",
        "write `fp8_block` or `bf16` for attention",
    )


def _moves_as_one(family: Family, whole_heads: bool) -> bool:
    """Whether rows that are reordered within a head keep their scale."""
    return family in (UNQUANTIZED, FP8_TENSOR) or (family is FP8_BLOCK and whole_heads)
