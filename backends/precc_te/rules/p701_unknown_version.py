"""The stated version of an engine is not one whose rules are known.

What an engine does with a recipe changes between versions, and precc reads back what it writes by the rules of one.
A version whose rules it does not have is refused rather than taken for another.

```prec expect=P701 model=qwen3-30b-a3b
default: mxfp8
train: te=2.9
```

State one of the versions of `precc targets`; `te=2.20` is the newest of 2.20.

```prec model=qwen3-30b-a3b
default: mxfp8
train: te=2.20 megatron_core=0.19
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.backend import unmodelled_versions
from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.versions import ENGINES

CODE = "P701"
NAME = "te-unknown-version"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding an engine."""
    for engine, word, modelled in unmodelled_versions(contract, ENGINES):
        yield error(
            CODE,
            f"precc does not know the rules of {engine} {word}",
            help=f"state one of {engine}={', '.join(modelled)}, or none for the newest",
        )
