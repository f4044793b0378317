"""SGLang: this format has no expert layer without a gate.

The experts of Nemotron-H have up and down alone. The expert layers of compressed-tensors (pack-quantized INT4, FP8 in
channels) allocate a gate beside up all the same, which nothing in the checkpoint fills, and the kernels for block FP8
know gated activations only.

```prec expect=P701 model=nemotron-3-nano-30b-a3b
targets: sglang
@routed_experts: weight int4, input bf16, train bf16
```

MXFP8, NVFP4 and static per-tensor FP8 are served:

```prec model=nemotron-3-nano-30b-a3b
targets: sglang
@routed_experts: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_BLOCK, FP8_CHANNEL, INT4
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-experts-without-a-gate"
SEVERITY = Severity.ERROR

GATED_ONLY = frozenset(family.name for family in (FP8_BLOCK, FP8_CHANNEL, INT4))


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all experts without a gate in a format whose layer has one."""
    choice = choice_of(contract)
    if choice is None:
        return
    ungated = [
        entry
        for module, entry, family in choice.entries(Kind.EXPERTS)
        if family is not None and family.name in GATED_ONLY and not choice.is_gated(module)
    ]
    yield from refuse(
        contract,
        CODE,
        ungated,
        "has no expert layer without a gate in this format",
        "write `mxfp8`, `nvfp4` or `bf16` for them",
    )
