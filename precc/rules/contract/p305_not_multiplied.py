"""A tensor that is not multiplied is given a low format.

Norms, biases, correction terms and the embedding table are read, added or looked up; no matrix multiplication has
them as an operand. A format below 16 bits says how an operand is multiplied, so it means nothing for them.

```prec expect=P305 model=qwen3-30b-a3b
@norm: mxfp8
```

Leave them as they are stored:

```prec model=qwen3-30b-a3b
@norm: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error

CODE = "P305"
NAME = "not-multiplied"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """Every rule that reaches such tensors."""
    found: dict[object, list[Entry]] = {}
    for entry in contract.quantized():
        if not entry.tensor.is_gemm:
            found.setdefault(entry.cause, []).append(entry)
    for entries in found.values():
        yield error(
            CODE,
            f"{counted_names(entries)}: no matrix multiplication has this as an operand, so it cannot be "
            f"{entries[0].decision.weight.format}",
            entries[0].span,
            help="write `bf16`, or name the GEMM weights that you mean",
        )
