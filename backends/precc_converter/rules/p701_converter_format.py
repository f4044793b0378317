"""The converter has no quantizer for this format.

A checkpoint can only hold what some quantizer writes. The converter writes `fp8`, `fp8_block`, `mxfp8`, `nvfp4` and
`int4` weights, and leaves weights in `bf16`, `fp16` and `fp32`. `mxfp4` and `int8` are words of the language for which
it has no byte-exact quantizer, so a plan for them would promise bytes that nobody can check. Stacks of experts that are
MXFP4 in the source, as those of gpt-oss, stay what they are.

```prec expect=P701 model=qwen3-30b-a3b
@routed_experts: weight int8, train bf16
targets: converter
```

Write another format for the weights, or leave the converter out of `targets:` and bring a checkpoint of your own:

```prec model=qwen3-30b-a3b
@routed_experts: weight int4, train bf16
targets: converter
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_converter.refusal import refuse
from precc_converter.written import STORED_NAMES, keeps_stack

CODE = "P701"
NAME = "converter-format"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding a format that has no quantizer."""
    made = [entry for entry in contract.entries if entry.decision.weight.is_quantized and not keeps_stack(entry)]
    for form in sorted({entry.decision.weight.format for entry in made} - {*STORED_NAMES}):
        yield refuse(
            [entry for entry in made if entry.decision.weight.format == form],
            f"cannot write {form} weights",
            help=f"write one of {', '.join(STORED_NAMES)}, or leave `converter` out of `targets:`",
        )
