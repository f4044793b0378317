"""Megatron-Core has no such model.

A recipe is matched against the linear layers that Megatron-Core's `GPTModel` builds. Of DeepSeek-V4 it builds none:
neither its attention over compressed keys nor its hyper-connections are there, in no version that is modelled. Nor does
it build the layers of Gemma 4, Kimi-K3, MiMo-V2, MiniMax-M3 or Step-3.7. Layers with one mixer each, as Nemotron-H has
them, are another class's, whose names are not modelled.

```prec expect=P701 model=deepseek-v4-flash
targets: te
@routed_experts: mxfp8
```

Leave the trainer out of `targets:`.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.versions import engine_of

CODE = "P701"
NAME = "te-architecture"
SEVERITY = Severity.ERROR

MISSING = {
    "deepseek_v4": "no attention over compressed keys, and no hyper-connections",
    "nemotron_h": "no layers of one mixer each in its `GPTModel`, and its hybrid model is not modelled",
    "gemma4": "no attention whose keys are its values, and no dense MLP beside routed experts",
    "minimax_m3": "no indexer that reads hidden states and picks blocks of keys",
    "kimi_k3": "no delta attention with a decay for each channel, and no attention residuals",
    "step3p7": "no attention whose heads have a gate each, nor one with heads of its own where it slides",
    "mimo_v2": "no attention whose values are narrower than its keys, nor one with heads of its own where it slides",
}
"""What Megatron-Core lacks of a family, in all modelled versions."""


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for a model that it does not build."""
    model = contract.model
    if model.family in MISSING:
        version = engine_of(contract.train).megatron.version
        message = f"Megatron-Core {version} builds no {model.architecture}: it has {MISSING[model.family]}"
        yield error(CODE, message, contract.entries[0].span, help="leave `te` out of `targets`")
