"""SGLang: one expert backend must run every expert layer.

The expert kernels are chosen once for the process. FlashInfer's TRT-LLM kernels run MXFP8, NVFP4, FP32-scaled block
FP8 and BF16 layers side by side; weight-only NVFP4 needs Marlin, block FP8 with power-of-two scales on Blackwell
needs DeepGEMM, and neither runs the others. Kimi-K3's experts have an activation that FlashInfer's kernels know in
NVFP4 alone: there its MXFP8 and its BF16 experts cannot run.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
@routed_experts: mxfp8
@routed_experts in layers[:8]: weight nvfp4, train bf16
```

Formats that one backend runs:

```prec model=qwen3-30b-a3b
targets: sglang
@routed_experts: mxfp8
@routed_experts in layers[:8]: nvfp4 per_token
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import UNQUANTIZED
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse
from precc_sglang.server import allowed_runners

CODE = "P701"
NAME = "sglang-one-expert-backend"
SEVERITY = Severity.ERROR

HELP = (
    "give all expert layers formats of one backend: MXFP8 and NVFP4 with quantized inputs, or one of weight-only NVFP4 "
    "and block FP8"
)
HELP_UNFIT = "leave all experts in `bf16`, or write `nvfp4 per_token` or `weight mxfp4, train bf16` for all of them"


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding where no backend runs the formats of all expert layers."""
    choice = choice_of(contract)
    if choice is None or allowed_runners(contract, choice) != ():
        return
    found = [(entry, family) for _, entry, family in choice.entries(Kind.EXPERTS) if family is not None]
    unfit = bool(choice.built.unfit)
    titles = ", ".join(sorted({family.title for _, family in found if unfit or family is not UNQUANTIZED}))
    yield from refuse(
        contract,
        CODE,
        [entry for entry, family in found if family is not UNQUANTIZED],
        f"has no expert backend that runs {titles}{f' with the activation of {choice.built.name}' if unfit else ''}",
        HELP_UNFIT if unfit else HELP,
    )
