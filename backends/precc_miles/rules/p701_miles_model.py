"""Miles cannot name the trained weights of this architecture for a server.

Its live export has one file of names for each family, and picks it by parts of the architecture's name. A model that
none of them is for would be exported under another family's names, or not at all.

```prec expect=P701 model=mixtral-8x7b
default: mxfp8
targets: miles
```

Compile for the engines themselves; the converter and the live export of precc know every family that precc knows.

```prec model=qwen3-30b-a3b
default: mxfp8
targets: miles
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc_miles.profile import MAPPED, MILES

CODE = "P701"
NAME = "miles-model"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for an architecture without names."""
    if contract.model.architecture not in MAPPED:
        yield error(
            CODE,
            f"Miles {MILES} has no names for the trained weights of {contract.model.architecture} "
            f"({contract.model.name})",
            help=f"compile for `te`, `sglang` and `converter`; Miles has {', '.join(sorted(MAPPED))}",
        )
