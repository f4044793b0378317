"""SGLang: one setting holds for the whole process.

Whether NVFP4 inputs are scaled per token or by a stored scale, and four-over-six of inputs, are environment variables;
the scale type of block FP8 follows from the config and the kernels chosen at start. A policy that mixes them asks for
two servers.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
@routed_experts: nvfp4 per_token
@routed_experts in layers[:4]: input nvfp4 per_token four_over_six
```

One setting for all:

```prec model=qwen3-30b-a3b
targets: sglang
@routed_experts: weight nvfp4 four_over_six, input nvfp4 per_token four_over_six
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic, Severity
from precc.formats import FourOverSix
from precc_sglang.families import FP8_BLOCK, family_of, is_w4a4
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-process-wide-settings"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for each setting that would have two values."""
    inputs: dict[bool, list[Entry]] = {}
    adaptive: dict[FourOverSix | None, list[Entry]] = {}
    scales: dict[str | None, list[Entry]] = {}
    for entry in contract.quantized():
        family, operand = family_of(entry.decision), entry.decision.input
        if operand is not None and is_w4a4(family):
            inputs.setdefault(operand.static, []).append(entry)
            adaptive.setdefault(operand.four_over_six, []).append(entry)
        if family is FP8_BLOCK:
            scales.setdefault(entry.decision.weight.scale, []).append(entry)
    yield from _second(contract, inputs, "input", "the scope of NVFP4 inputs")
    yield from _second(contract, adaptive, "input", "four-over-six of NVFP4 inputs", _ADAPTIVE)
    yield from _second(contract, scales, "weight", "the scale type of block FP8")


_ADAPTIVE = (
    "; right behind the format it belongs to both operands (`nvfp4 per_token four_over_six`), in a clause of its own "
    "to the weights"
)


def _second(
    contract: Contract, values: Mapping[Any, list[Entry]], part: str, what: str, more: str = ""
) -> Iterator[Diagnostic]:
    if len(values) > 1:
        fewest = min(values.values(), key=lambda entries: sum(entry.tensor.count for entry in entries))
        one = f"has one setting for {what} in a process"
        yield from refuse(contract, CODE, fewest, one, f"decide it alike for all tensors{more}", part)
