"""SGLang: per-token NVFP4 inputs exist in expert layers only.

Per-token NVFP4 activations are a mode of the fused expert kernels. A dense NVFP4 layer (attention, a dense MLP, a
shared expert, every expert of Mixtral, which ModelOpt's methods build as dense layers) is served with the *static*
per-tensor `input_scale` of the checkpoint, 1.0 if none is stored: no online trainer computes the same.

```prec expect=P701 model=qwen3-30b-a3b
targets: sglang
default: nvfp4 per_token
```

Give the dense layers another format, or quantize their weights only:

```prec model=qwen3-30b-a3b
targets: sglang
@routed_experts: nvfp4 per_token
@attention: mxfp8
```

A checkpoint that holds input scales is served as it is:

```prec model=qwen3-30b-a3b
targets: sglang
default: weight nvfp4, input nvfp4 per_tensor static, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import NVFP4_TOKEN
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind
from precc_sglang.refusal import refuse
from precc_sglang.versions import release_of

CODE = "P701"
NAME = "sglang-dense-nvfp4-inputs"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all dense layers with per-token NVFP4 inputs."""
    choice = choice_of(contract)
    if choice is None:
        return
    dense = [entry for _, entry, family in choice.entries(Kind.LINEAR) if family is NVFP4_TOKEN]
    formats = "`mxfp8` or `bf16`" if "MXFP8" in release_of(contract.rollout).mixed else "`bf16`"
    yield from refuse(
        contract,
        CODE,
        dense,
        "serves dense NVFP4 layers with a static input scale, never per token",
        f"write {formats} for it, or `weight nvfp4` to leave its inputs unquantized",
        part="input",
    )
