"""SGLang: MXFP4 weights are for a class that loads them, and for all its experts alike.

Of the classes that precc knows, three read experts in MXFP4: that of gpt-oss, stacked as `experts.gate_up_proj_blocks`
and `_scales`, that of Kimi-K3, each by itself as compressed-tensors packs it, and that of DeepSeek-V4, each by itself
beside block FP8 (`routed_experts_quant_method: mxfp4`). The first two read no list: every expert layer is taken, and
linear layers have no such method. In the third an expert layer may be left in BF16, and not be in block FP8. With
unquantized inputs gpt-oss runs in Triton's kernels, which SGLang starts without expert parallelism only, and Kimi-K3 in
Marlin's, which know its activation. Inputs in MXFP8 are for DeepSeek-V4 on Blackwell.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
@routed_experts: weight mxfp4, train bf16
```

```prec expect=P701 model=gpt-oss-20b-bf16
targets: sglang
@routed_experts in layers[:8]: weight mxfp4, train bf16
```

```prec expect=P701 model=kimi-k3
targets: sglang
@routed_experts: weight mxfp4, input mxfp8, train bf16
```

```prec expect=P701 model=deepseek-v4-flash
targets: sglang
default: fp8_block
@mtp: fp8_block
@routed_experts: weight mxfp4, input mxfp8, train bf16
```

All experts of a gpt-oss, or of a Kimi-K3:

```prec model=gpt-oss-20b-bf16
targets: sglang
@routed_experts: weight mxfp4, train bf16
```

```prec model=kimi-k3
targets: sglang
@routed_experts: weight mxfp4, train bf16
```

Those of DeepSeek-V4, in MTP layers too:

```prec model=deepseek-v4-flash
targets: sglang
default: fp8_block
@mtp: fp8_block
@routed_experts: weight mxfp4, input mxfp8, train bf16
@routed_experts in @mtp: weight mxfp4, input mxfp8, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_BLOCK, MXFP4, UNQUANTIZED, family_of, is_mxfp4
from precc_sglang.methods import Choice, choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-mxfp4-experts"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for a class that loads none, one for experts left out, one for a layout without kernels."""
    choice = choice_of(contract)
    held = [entry for entry in contract.quantized() if is_mxfp4(family_of(entry.decision))]
    if choice is None or not held:
        return
    if not choice.built.mxfp4:
        yield from refuse(contract, CODE, held, f"loads no MXFP4 weights in {choice.built.name}", _OTHERS)
        return
    beside = list(_beside(choice))
    yield from refuse(contract, CODE, beside, "takes every expert layer for MXFP4 once one is", "write it for all")
    rounded = [entry for entry in held if family_of(entry.decision) is MXFP4 and choice.built.mxfp4 != "beside"]
    what = f"runs MXFP4 experts of {choice.built.name} with unquantized inputs here"
    yield from refuse(contract, CODE, rounded, what, "leave `input mxfp8` out", "input")
    if contract.rollout.ep > 1 and choice.built.mxfp4 == "stacked":
        yield from refuse(
            contract,
            CODE,
            held,
            f"has no kernels for weight-only MXFP4 with `ep={contract.rollout.ep}`",
            "write `ep=1` in the `rollout:` line",
        )


def _beside(choice: Choice) -> Iterator[Entry]:
    """The experts that would be taken for MXFP4, too; of experts in NVFP4 and block FP8, those of one model."""
    barred = FP8_BLOCK if choice.built.mxfp4 == "beside" else UNQUANTIZED
    yield from (entry for _, entry, family in choice.entries(Kind.EXPERTS) if family is barred)


_OTHERS = "served are `weight nvfp4`, `nvfp4 per_token` (experts) or `mxfp8`"
