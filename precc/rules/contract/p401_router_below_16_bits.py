"""A router is below 16 bits.

The router's logits choose the experts. A rounding error there changes which expert a token goes to, on one side and
not on the other, and no later precision repairs that. Engines keep routers at 16 bits or more; precc refuses to write
anything else, even for a rule that names the router.

```prec expect=P401 model=qwen3-30b-a3b
@router: mxfp8
```

```prec model=qwen3-30b-a3b
@router: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, error
from precc.syntax.words import Role

CODE = "P401"
NAME = "router-below-16-bits"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """All routers and expert gates at once."""
    low = [e for e in contract.quantized() if e.tensor.role is Role.ROUTER]
    if low:
        yield error(
            CODE,
            f"{folded_names(low)}: a router below 16 bits ({low[0].decision.weight.format})",
            low[0].span,
            help="write `@router: bf16`, or leave the router out of the rule",
        )
