"""SGLang: this version is not modelled.

The matching rules and the kernels that precc knows are those of the versions that `precc targets` lists. Artifacts
for another one could be read differently there.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
rollout: sglang=0.4.9
@routed_experts: mxfp8
```

State a version that is modelled, or none for the newest:

```prec model=qwen3-30b-a3b
targets: sglang
rollout: sglang=0.5.23
@routed_experts: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.backend import unmodelled_versions
from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc_sglang.versions import ENGINES

CODE = "P701"
NAME = "sglang-version-not-modelled"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for each engine whose stated version is unknown."""
    for name, stated, known in unmodelled_versions(contract, ENGINES):
        yield error(
            CODE,
            f"{name} {stated} is not modelled",
            help=f"modelled are {', '.join(known)}; write one of them in the `rollout:` line, or none",
        )
