"""Per-token NVFP4 trains with a high-precision backward pass because the policy names none.

TransformerEngine's row-scaled NVFP4 is a forward mode: it has no native backward. Without a `backward` clause the
backward GEMMs run in BF16 on the original operands. This is information.

```prec expect=P508 model=qwen3-30b-a3b
experts.*: nvfp4 per_token
```

Name the mode:

```prec model=qwen3-30b-a3b
experts.*: nvfp4 per_token, backward high_precision
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.diagnostics import Diagnostic, Severity, info
from precc.resolve.bind import Binding

CODE = "P508"
NAME = "backward-default"
SEVERITY = Severity.INFO


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Once a policy: the first rule whose tensors got the mode by default."""
    for entry in binding.contract.entries:
        said = any(part == "backward" for part, _ in entry.clauses)
        if entry.decision.backward == "high_precision" and not said:
            yield info(
                CODE,
                "`backward high_precision` is assumed: per-token NVFP4 has no native backward",
                entry.span_of("input"),
                help="write `backward high_precision` or `backward dequantized` to choose",
            )
            return
