"""A format that Miles does not carry through converter, trainer, live export and rollout, or a second one.

Miles has three that its live export writes as its converter does: MXFP8, NVFP4 with inputs scaled per token, and FP8
blocks with FP32 scales. One run has one of them: a converter writes one format, Megatron takes FP8 or FP4, and SGLang
one method.

```prec expect=P701 model=qwen3-30b-a3b
default: mxfp8
@routed_experts: nvfp4 per_token
targets: miles
```

Choose one, and leave the rest in BF16, or compile for the engines themselves, which can mix:

```prec model=qwen3-30b-a3b
@routed_experts: nvfp4 per_token
targets: miles
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error
from precc_miles.forms import form_of, why_not
from precc_miles.profile import MILES

CODE = "P701"
NAME = "miles-format"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding a format that is not carried, and one for what is in another format than most."""
    unknown: dict[str, list[Entry]] = {}
    for entry in contract.quantized():
        unknown.setdefault(why_not(entry.decision), []).append(entry)
    carried = unknown.pop("", [])
    for why, entries in unknown.items():
        yield error(
            CODE,
            f"{counted_names(entries)} cannot be `{entries[0].decision}` on all stages of Miles {MILES}: {why}",
            entries[0].span,
            help="write `mxfp8`, `nvfp4 per_token`, or `fp8_block scales fp32` on a Hopper GPU",
        )
    yield from _second(contract, carried)
    yield from _wide(contract)


def _second(contract: Contract, carried: list[Entry]) -> Iterator[Diagnostic]:
    form = form_of(contract)
    others = [entry for entry in carried if form is not None and entry.decision.weight.format != form.name]
    if form is not None and others:
        yield error(
            CODE,
            f"{counted_names(others)} are decided {others[0].decision}, and most of what is quantized {form.name}: "
            f"one run of Miles {MILES} converts, trains and serves one format",
            others[0].span,
            help=f"decide them {form.name} or bf16, or compile for `te`, `sglang` and `converter`",
        )


def _wide(contract: Contract) -> Iterator[Diagnostic]:
    """What is multiplied in 16 or 32 bits of another kind than all stages have."""
    wide = [entry for entry in contract.entries if entry.tensor.is_gemm and not entry.decision.is_quantized]
    wide = [entry for entry in wide if entry.decision.weight.format not in ("bf16", entry.tensor.dtype)]
    if wide:
        yield error(
            CODE,
            f"{counted_names(wide)} cannot be {wide[0].decision} on all stages of Miles {MILES}: its trainer and its "
            "server run in BF16",
            wide[0].span,
            help="write `bf16`",
        )
