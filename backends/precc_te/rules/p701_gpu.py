"""The training GPU cannot run a format.

MXFP8 and NVFP4 are instructions of Blackwell; on Hopper, TransformerEngine's kernels for them are empty. Block FP8
with FP32 scales exists on Hopper only: Blackwell emulates block FP8 with MXFP8, whose scales are powers of two.

```prec expect=P701 model=qwen3-30b-a3b
default: mxfp8
train: gpu=h200
```

```prec expect=P701 model=qwen3-30b-a3b
default: fp8_block scales fp32
train: gpu=b200
```

```prec model=qwen3-30b-a3b
default: fp8_block scales fp32
train: gpu=h200
targets: te
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.modules import modules_of
from precc_te.precision import TePrecision

CODE = "P701"
NAME = "te-gpu"
SEVERITY = Severity.ERROR

HOPPER = ("h100", "h200")
BLACKWELL = ("b200", "b300", "gb200", "gb300")


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding a precision that the GPU lacks."""
    gpu = contract.train.gpu
    for precision, lines in modules_of(contract).quantized.items():
        wanted = _needs(precision)
        if gpu in wanted:
            continue
        entries = [line.entry for line in lines]
        yield error(
            CODE,
            f"{counted_names(entries)} cannot train as `{entries[0].decision}` on {gpu}: "
            f"TransformerEngine has that on {', '.join(wanted)}",
            entries[0].span,
            help=_help(precision),
        )


def _needs(precision: TePrecision) -> tuple[str, ...]:
    if precision.recipe in ("mxfp8", "nvfp4"):
        return BLACKWELL
    return HOPPER if precision.recipe == "blockwise" and not precision.pow2_scales else HOPPER + BLACKWELL


def _help(precision: TePrecision) -> str:
    if precision.recipe == "blockwise":
        return "write `fp8_block scales pow2`, or state a Hopper GPU on the `train:` line"
    return "state a Blackwell GPU on the `train:` line (`gpu=b200`), or write `fp8_block`"
