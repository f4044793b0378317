"""SGLang: an absorbed block-FP8 `kv_b_proj` multiplies in BF16.

Absorption dequantizes 128×128 blocks to BF16, so decoding multiplies BF16 inputs by it, while prefill may multiply
FP8 inputs. The weights keep their values, and nothing says that the inputs are not quantized; the trainer's forward
quantizes both operands.

```prec expect=P702 model=deepseek-v3
targets: sglang
default: fp8_block
```

Decide it in BF16, and both sides are the same:

```prec model=deepseek-v3
targets: sglang
default: fp8_block
kv_b_proj: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import FP8_BLOCK
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse

CODE = "P702"
NAME = "sglang-absorption-dequantizes"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all block-FP8 `kv_b_proj`."""
    choice = choice_of(contract)
    if choice is None:
        return
    blocks = [e for _, e, family in choice.entries() if e.tensor.part == "kv_b" and family is FP8_BLOCK]
    yield from refuse(
        contract,
        CODE,
        blocks,
        "multiplies an absorbed block-FP8 `kv_b_proj` in BF16",
        "write `kv_b_proj: bf16`, so that trainer and server agree",
    )
