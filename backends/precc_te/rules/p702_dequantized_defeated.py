"""A `dequantized` backward would run on the original inputs.

TransformerEngine before 2.18 keeps a layer's original input where Megatron asks it to, and its backward then uses
that input instead of the dequantized one: `dequantized` silently becomes half of `high_precision`. Megatron always
asks for the attention's output projection and the shared experts' first layer, and for others where their
activations are recomputed or offloaded.

```prec expect=P702 model=qwen3-30b-a3b
default: mxfp8, backward dequantized
train: te=2.17
```

```prec model=qwen3-30b-a3b
default: mxfp8, backward dequantized
train: te=2.18
```

Train with 2.18 or newer, or with `backward high_precision`. Where only layers are concerned whose inputs Megatron
keeps under recomputation, this is a warning: precc does not see those arguments.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, Severity, error, warning
from precc_te.modules import Line, modules_of
from precc_te.versions import DEQUANTIZED_KEPT, engine_of

CODE = "P702"
NAME = "te-dequantized-defeated"
SEVERITY = Severity.ERROR

ALWAYS_KEPT = ("self_attention.linear_proj", "mlp.shared_experts.linear_fc1")
"""The layers whose original input Megatron always asks to keep under FP8 and FP4."""


def check(contract: Contract) -> Iterator[Diagnostic]:
    """An error for the layers that are always concerned; else a warning for those that may be."""
    engine = engine_of(contract.train)
    if engine.has(DEQUANTIZED_KEPT):
        return
    lines = [
        line
        for precision, users in modules_of(contract).quantized.items()
        for line in users
        if precision.backward == "dequantized"
    ]
    certain = [line for line in lines if line.module is not None and line.module.suffix in ALWAYS_KEPT]
    if certain:
        yield error(CODE, _message(certain, engine.te, "keeps"), certain[0].entry.span, help=_HELP)
    elif lines:
        told = _message(lines, engine.te, "keeps, where activations are recomputed or offloaded,")
        yield warning(CODE, told, lines[0].entry.span, help=_HELP)


_HELP = "train with te=2.18 or newer, or with `backward high_precision`"


def _message(lines: list[Line], te: str, keeps: str) -> str:
    names = counted_names([line.entry for line in lines])
    return (
        f"TransformerEngine {te} does not run the `dequantized` backward of {names}: it {keeps} the original input "
        "for Megatron, and uses it"
    )
