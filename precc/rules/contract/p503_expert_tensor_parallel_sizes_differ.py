"""Per-token NVFP4 experts run with different expert tensor parallel sizes.

A per-token scale is the maximum over the part of a token that a rank multiplies. Split an expert over two ranks, and
`down_proj` sees half of the intermediate activation on each: other maxima, other scales, other logits. Training and
serving agree only with equal expert tensor parallel sizes. In SGLang that size is tp / ep.

```prec expect=P503 model=qwen3-30b-a3b
experts.*: nvfp4 per_token, backward high_precision
train: etp=1
rollout: tp=4 ep=2
```

```prec model=qwen3-30b-a3b
experts.*: nvfp4 per_token, backward high_precision
train: etp=1
rollout: tp=4 ep=4
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, error
from precc.syntax.words import Role

CODE = "P503"
NAME = "expert-tensor-parallel-sizes-differ"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """When both sides are asked for, and some experts have per-token scales on both."""
    if not (contract.runs("te") and contract.runs("sglang")):
        return
    train, served = contract.train.etp, contract.rollout
    scoped = [
        entry
        for entry in contract.quantized()
        if entry.tensor.role is Role.ROUTED_EXPERTS
        and entry.decision.trains_quantized
        and entry.decision.input is not None
        and entry.decision.input.scope == "per_token"
    ]
    if scoped and train != served.expert_tp:
        yield error(
            CODE,
            f"{folded_names(scoped)} have per-token scales, and an expert is split over {train} "
            f"in training and {served.expert_tp} in serving (tp={served.tp} / ep={served.ep})",
            scoped[0].span_of("input"),
            help=f"leave experts whole on both sides: `train: etp=1` and `rollout: tp={served.tp} ep={served.tp}`",
        )
