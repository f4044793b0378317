"""A GPU on which one of Miles' stages would use other scales.

MXFP8 and NVFP4 are Blackwell's. Block FP8 is the other way round: Miles' converter writes FP32 scales, and on a
Blackwell GPU its live export and its trainer have powers of two.

```prec expect=P701 model=qwen3-30b-a3b
default: fp8_block scales fp32
targets: miles
```

```prec model=qwen3-30b-a3b
default: fp8_block scales fp32
train: gpu=h200
rollout: gpu=h200
targets: miles
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error
from precc_miles.forms import form_of
from precc_miles.profile import BLACKWELL, HOPPER, MILES

CODE = "P701"
NAME = "miles-gpu"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding a side whose GPU is not one of the format's."""
    form = form_of(contract)
    if form is None:
        return
    fits = HOPPER if form.hopper else BLACKWELL
    entries = [entry for entry in contract.quantized() if entry.decision.weight.format == form.name]
    for side, layout in (("train", contract.train), ("rollout", contract.rollout)):
        if layout.gpu not in fits:
            yield error(
                CODE,
                f"{counted_names(entries)}: Miles {MILES} runs {form.name} with the same scales on all stages on "
                f"{', '.join(fits)}, not on {layout.gpu}",
                entries[0].span,
                help=f"state one of these on the `{side}:` line" + (", or write `mxfp8`" if form.hopper else ""),
            )
