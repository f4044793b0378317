"""TransformerEngine has no linear layer that runs as decided.

It quantizes both operands, in MXFP8, NVFP4, block FP8 or per-tensor FP8, and only in its own linear layers: not in
the router, the embedding or the output layer. Integers, weight-only formats and static input scales are formats of
the server.

```prec expect=P701 model=qwen3-30b-a3b
experts.*: int4
rollout: tp=4 ep=4
```

Say that the trainer's forward is another (P505 lists which pairs exist), or leave the trainer out of `targets:`.

```prec model=qwen3-30b-a3b
experts.*: int4 group 128, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.modules import modules_of
from precc_te.precision import Refusal
from precc_te.versions import engine_of

CODE = "P701"
NAME = "te-untrainable"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding a reason."""
    found: dict[Refusal, list[Entry]] = {}
    for line in modules_of(contract).lines:
        if isinstance(line.precision, Refusal):
            found.setdefault(line.precision, []).append(line.entry)
    te = engine_of(contract.train).te
    for refusal, entries in found.items():
        what = f"{counted_names(entries)} cannot train as `{entries[0].decision}`"
        yield error(CODE, f"{what} (TransformerEngine {te}): {refusal.reason}", entries[0].span, help=refusal.help)
