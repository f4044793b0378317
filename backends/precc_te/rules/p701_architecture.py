"""Megatron-Core has no such model.

A recipe is matched against the linear layers that Megatron-Core builds. Of DeepSeek-V4 it builds none: neither its
attention over compressed keys nor its hyper-connections are there, in no version that is modelled.

```prec expect=P701 model=deepseek-v4-flash
targets: te
@routed_experts: mxfp8
```

Leave the trainer out of `targets:`.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.versions import engine_of

CODE = "P701"
NAME = "te-architecture"
SEVERITY = Severity.ERROR

MISSING = {"deepseek_v4": "no attention over compressed keys, and no hyper-connections"}
"""What Megatron-Core lacks of a family, in all modelled versions."""


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for a model that it does not build."""
    model = contract.model
    if model.family in MISSING:
        version = engine_of(contract.train).megatron.version
        message = f"Megatron-Core {version} builds no {model.architecture}: it has {MISSING[model.family]}"
        yield error(CODE, message, contract.entries[0].span, help="leave `te` out of `targets`")
