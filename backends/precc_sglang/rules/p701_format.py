"""SGLang: no quantization method multiplies in this format.

SGLang 0.5.23 serves MXFP8; FP8 in 128×128 blocks, with static per-tensor scales, or with per-channel weights and
per-token inputs; NVFP4 with static inputs, in expert layers with per-token ones too; weight-only NVFP4; weight-only
INT4 in groups of 32 or 128; weight-only MXFP4 in experts of gpt-oss, Kimi-K3 and DeepSeek-V4, in the last with MXFP8
inputs too. It has nothing for the rest (MXFP4 inputs, INT8 groups, FP8 with dynamic per-tensor inputs, weight-only FP8,
other operands of different formats), and what it does not know it would run unquantized without a word.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
@routed_experts: mxfp4
```

Use one that it serves:

```prec model=qwen3-30b-a3b
targets: sglang
@routed_experts: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic, Severity
from precc.formats import Decision
from precc_sglang.families import family_of
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-has-no-method"
SEVERITY = Severity.ERROR


INSTEAD: dict[str, str] = {
    "fp8": "`weight fp8 per_channel, input fp8 per_token`, `weight fp8 per_tensor, input fp8 per_tensor static`, or "
    "`fp8_block`",
    "fp8_block": "`fp8_block` and `fp8_block scales fp32` (right behind the format, `scales` belongs to both operands; "
    "in a clause of its own, to the weights)",
    "int4": "`weight int4 group 32` or `group 128`",
    "int8": "`weight int4 group 32` or `fp8_block`",
    "mxfp4": "`weight mxfp4` with unquantized inputs (experts of gpt-oss, Kimi-K3 and DeepSeek-V4), `nvfp4 per_token` "
    "(experts) or `mxfp8`",
    "nvfp4": "`nvfp4 per_token` (experts), or `weight nvfp4` with unquantized inputs",
    "mxfp8": "`mxfp8` for both operands",
}


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for each decision that no method serves."""
    without: dict[Decision, list[Entry]] = {}
    for entry in contract.quantized():
        if family_of(entry.decision) is None:
            without.setdefault(entry.decision, []).append(entry)
    for decision, entries in without.items():
        yield from refuse(
            contract,
            CODE,
            entries,
            f"has no method for `{decision}`",
            f"served are {INSTEAD.get(decision.weight.format, '`mxfp8`, `fp8_block` or `nvfp4 per_token` (experts)')}",
            part=_culprit(decision),
        )


def _culprit(decision: Decision) -> str:
    """The inputs, where the weights are served with others."""
    operand = decision.input
    return "input" if operand is not None and operand.format != decision.weight.format else "weight"
