"""An amendment asks for a combination that no format has.

Amendments are judged by what they make of each tensor. Per-token NVFP4 is a forward mode: it has no native backward
pass, however the two came together.

```prec expect=P304 model=qwen3-30b-a3b
extends "nvfp4_rl"
@routed_experts: backward native
```

```prec model=qwen3-30b-a3b
extends "nvfp4_rl"
@routed_experts: backward dequantized
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, error
from precc.resolve.fill import default_backward

CODE = "P304"
NAME = "undefined-combination"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """Every decision with a native backward pass."""
    found: dict[object, list[Entry]] = {}
    for entry in contract.quantized():
        operand, backward = entry.decision.input, entry.decision.backward
        if backward == "native" and operand is not None and default_backward(operand) != "native":
            found.setdefault(entry.span_of("backward"), []).append(entry)
    for entries in found.values():
        yield error(
            CODE,
            f"{folded_names(entries)}: per-token NVFP4 has no native backward",
            entries[0].span_of("backward"),
            help="write `backward high_precision` or `backward dequantized`",
        )
