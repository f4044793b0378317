"""More first or last layers in BF16 than a pipeline stage has, which Megatron does not start with under FP8.

Miles keeps whole layers in BF16 by two counts, for converter, trainer and live export alike. Megatron allows each to be
at most the number of layers of a stage, in FP8 formats.

```prec expect=P506 model=qwen3-30b-a3b
default: mxfp8
layers[-15%:]: bf16
train: pp=8
targets: miles
```

```prec model=qwen3-30b-a3b
default: mxfp8
layers[-15%:]: bf16
train: pp=4
targets: miles
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc_miles.choosing import choose
from precc_miles.forms import NVFP4

CODE = "P506"
NAME = "miles-counts"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for the larger count."""
    training = choose(contract).training
    layers, stages = contract.model.layers, contract.train.pp
    most = max(training.start, training.end)
    if training.form is None or training.form is NVFP4 or most <= layers // stages:
        return
    side = range(training.start) if training.start == most else range(layers - most, layers)
    kept = next(entry for entry in contract.entries if entry.tensor.layer in side and entry.tensor.is_gemm)
    yield error(
        CODE,
        f"{most} layers at one end stay in BF16, and under FP8 Megatron allows {layers // stages} at pp={stages}",
        kept.span,
        help=f"train with `pp` of at most {layers // most}, or keep at most {layers // stages} layers",
    )
