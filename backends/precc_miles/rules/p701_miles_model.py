"""Miles cannot name the trained weights of this architecture for a server, or its names are not modelled.

Its live export has one file of names for each family, and picks it by parts of the architecture's name. A model that
none of them is for would be exported under another family's names, or not at all. Some of these files (DeepSeek-V4's,
Kimi-K2.5's, Qwen3.5's) precc does not model yet, so that it could not read back what they do; the finding says which.

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
from precc.graph.model import ModelGraph
from precc_miles.profile import MAPPED, MILES, UNMODELLED

CODE = "P701"
NAME = "miles-model"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for an architecture without modelled names."""
    if contract.model.architecture not in MAPPED:
        yield error(
            CODE,
            _problem(contract.model),
            help=f"compile for `te`, `sglang` and `converter`; modelled are {', '.join(sorted(MAPPED))}",
        )


def _problem(model: ModelGraph) -> str:
    """Which of the two it is: Miles has no names, or they are not modelled here."""
    named = f"the trained weights of {model.architecture} ({model.name})"
    file = UNMODELLED.get(model.architecture)
    if file is None:
        return f"Miles {MILES} has no names for {named}"
    return f"Miles {MILES} has names for {named} in `megatron_to_hf/{file}`, which are not modelled here"
