"""An engine of another version than Miles pins.

Miles' image has one version of each engine. Its converters, its live export and its patches are written for these, and
so are the files that precc writes for it: SGLang 0.5.16, TransformerEngine 2.17, FlashInfer 0.6.15.post1.

```prec expect=P701 model=qwen3-30b-a3b
default: mxfp8
rollout: sglang=0.5.23
targets: miles
```

Leave versions out, or state those of the image:

```prec model=qwen3-30b-a3b
default: mxfp8
rollout: sglang=0.5.16
train: te=2.17
targets: miles
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.backend import unmodelled_versions
from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc_miles.profile import ENGINES, MILES

CODE = "P701"
NAME = "miles-version"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding a version that is stated otherwise."""
    for engine, stated, modelled in unmodelled_versions(contract, ENGINES):
        yield error(
            CODE,
            f"Miles {MILES} runs {engine} {modelled[0]}, not {stated}",
            help=f"leave `{engine}={stated}` out, or compile for `te` and `sglang`",
        )
