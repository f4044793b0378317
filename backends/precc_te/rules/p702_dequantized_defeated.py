"""A `dequantized` backward would run on the original inputs.

TransformerEngine before 2.18 keeps a layer's original input where Megatron asks it to, and its backward then uses
that input instead of the dequantized one: `dequantized` silently becomes half of `high_precision`. Megatron always
asks for the attention's output projection and the shared experts' first layer, and for others where their
activations are recomputed or offloaded. precc does not see those arguments, so no layer is certain to be spared.

```prec expect=P702 model=qwen3-30b-a3b
default: mxfp8, backward dequantized
train: te=2.17
```

```prec model=qwen3-30b-a3b
default: mxfp8, backward dequantized
train: te=2.18
```

Train with 2.18 or newer, or with `backward high_precision`. Where Megatron asks for none of the layers, because
nothing is recomputed or offloaded, `# precc: ignore[P702]` on the rule says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import counted_names, folded_names
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.modules import modules_of
from precc_te.versions import DEQUANTIZED_KEPT, engine_of

CODE = "P702"
NAME = "te-dequantized-defeated"
SEVERITY = Severity.ERROR

ALWAYS_KEPT = ("self_attention.linear_proj", "mlp.shared_experts.linear_fc1")
"""The layers whose original input Megatron always asks to keep under FP8 and FP4."""


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all layers with such a backward; it says which of them are always concerned."""
    engine = engine_of(contract.train)
    if engine.has(DEQUANTIZED_KEPT):
        return
    used = modules_of(contract).quantized.items()
    lines = [line for precision, users in used for line in users if precision.backward == "dequantized"]
    if not lines:
        return
    entries = [line.entry for line in lines]
    always = [line.entry for line in lines if line.module is not None and line.module.suffix in ALWAYS_KEPT]
    asks = "where activations are recomputed or offloaded"
    if always:
        asks = f"always for {folded_names(always)}, for others {asks}"
    yield error(
        CODE,
        f"TransformerEngine {engine.te} runs the `dequantized` backward of {counted_names(entries)} on the original "
        f"input where Megatron asks to keep it: {asks}",
        (always or entries)[0].span_of("backward"),
        help="train with te=2.18 or newer, or with `backward high_precision`",
    )
