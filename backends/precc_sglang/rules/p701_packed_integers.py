"""SGLang: this class takes what is packed for MXFP4.

compressed-tensors stores packed weights as `weight_packed`, whatever they are. The loader of Kimi-K3 renames all of
them to `weight`, as its experts in MXFP4 are held; a layer of packed integers waits for `weight_packed` and stays as it
was allocated.

```prec expect=P701 model=kimi-k3
targets: sglang
@routed_experts: weight int4 group 32, train bf16
```

Four bits that it loads:

```prec model=kimi-k3
targets: sglang
@routed_experts: weight mxfp4, train bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity
from precc_sglang.families import INT4
from precc_sglang.methods import choice_of
from precc_sglang.refusal import refuse

CODE = "P701"
NAME = "sglang-packed-integers"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for all packed integers of a class that takes them for MXFP4."""
    choice = choice_of(contract)
    if choice is None or choice.built.mxfp4 != "packed":
        return
    packed = [entry for _, entry, family in choice.entries() if family is not None and family.name == INT4.name]
    yield from refuse(
        contract,
        CODE,
        packed,
        f"loads no packed integers in {choice.built.name}: it takes them for MXFP4",
        "write `weight mxfp4, train bf16` for experts, or leave `sglang` out of `targets:`",
    )
