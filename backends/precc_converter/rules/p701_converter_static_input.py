"""A static input scale that no source has.

`input FORMAT static` says that the scale of the activations is read from the checkpoint. Such a scale comes from
running the model over calibration data; it cannot be computed from the weights. It is kept from a source that has it
beside a weight in the same format, which stays as it is. Any other source has nothing to copy, and a made-up scale
(many tools write 1.0) would silently clip or flush activations in the server.

```prec expect=P701 model=qwen3-30b-a3b
@attention: weight fp8, input fp8 static, train bf16
targets: converter
```

Leave `static` away, so that the server scales activations as they come, or leave the converter out of `targets:` and
bring a calibrated checkpoint:

```prec model=qwen3-30b-a3b
@attention: fp8, train bf16
targets: converter
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_converter.refusal import refuse
from precc_converter.stored import is_read
from precc_converter.written import keeps_input_scale

CODE = "P701"
NAME = "converter-static-input"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding over all tensors whose input scale would have to be in the source."""
    static = [e for e in contract.entries if e.decision.input is not None and e.decision.input.static]
    static = [entry for entry in static if not (is_read(entry.tensor) and keeps_input_scale(entry, contract.model))]
    if static:
        yield refuse(
            static,
            "has no input scale to store: the source has none for this format, and `static` needs a calibration run",
            help="leave `static` away, so that the server scales activations as they come, "
            "or leave `converter` out of `targets:` and serve a calibrated checkpoint",
            part="input",
        )
