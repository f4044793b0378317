"""A model with a table that is no weight.

The first layers of DeepSeek-V4 route each token by its number, through a table of integers beside the router. precc
knows weights and has no place for it: a converted checkpoint would lack it.

```prec expect=P701 model=deepseek-v4-flash
targets: converter
@routed_experts: mxfp8
```

Leave the converter out of `targets:`, and convert this model with the tools of its publisher.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc.syntax.words import Role
from precc_converter.refusal import refuse

CODE = "P701"
NAME = "converter-routing-table"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding over the routers that have such a table."""
    hashed = contract.model.config.get("num_hash_layers", 0)
    routers = [
        entry
        for entry in contract.entries
        if entry.tensor.role is Role.ROUTER and entry.tensor.layer is not None and entry.tensor.layer < hashed
    ]
    if routers:
        yield refuse(
            routers,
            "cannot convert the tables of integers that these routers look tokens up in",
            help="leave `converter` out of `targets`",
        )
