"""SGLang: the draft model that runs an MTP layer asks with the names of the decoder's layer 0.

The draft class of Qwen3-Next calls its one layer `model.layers.0`, so that no config can decide it otherwise than the
decoder's first layer: with experts in NVFP4 there, the draft would be built in NVFP4, and its BF16 weights would not
load. precc leaves the MTP layer to servers without a draft model, which do not read it. Start the server without
`--speculative-algorithm`.

```prec expect=P702 model=qwen3-next-80b-a3b
targets: sglang
@routed_experts: nvfp4 per_token
```

Where nothing is quantized, the draft model needs no config:

```prec model=qwen3-next-80b-a3b
targets: sglang
default: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, info
from precc_sglang.methods import NONE, choice_of
from precc_sglang.refusal import engine

CODE = "P702"
NAME = "sglang-draft-of-layer-zero"
SEVERITY = Severity.INFO


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for the MTP layers of a class whose draft model cannot have a config of its own."""
    choice = choice_of(contract)
    if choice is None or choice.built.drafts or choice.method == NONE or not contract.model.mtp_layers:
        return
    yield info(
        CODE,
        f"{engine(contract)} names the layer of a draft model as the decoder's layer 0: no config decides it apart",
        next((entry.span for entry in contract.quantized() if entry.span is not None), None),
        help="start the server without `--speculative-algorithm`; the MTP layer is stored and not read",
    )
