"""A layout is assumed because the policy states none.

What an engine can express depends on how it is run: block divisibility on tensor parallelism, layer rules on pipeline
stages. Without a `train:` or `rollout:` line a compile assumes one B200 and sizes of 1, writes that to
`MANIFEST.json`, and the running job can be checked against it. This is information.

```prec expect=P507 model=qwen3-30b-a3b
experts.*: nvfp4 per_token, backward high_precision
```

State the layouts, in the file or with `--train` and `--rollout`:

```prec model=qwen3-30b-a3b
experts.*: nvfp4 per_token, backward high_precision
train: gpu=b200 ep=4
rollout: gpu=b200 tp=2 ep=2
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract.wording import listed
from precc.diagnostics import Diagnostic, Severity, info
from precc.resolve.bind import Binding

CODE = "P507"
NAME = "assumed-layout"
SEVERITY = Severity.INFO

EXAMPLES = {"train": "train: gpu=b200 tp=1 pp=1 ep=8", "rollout": "rollout: gpu=b200 tp=8 ep=8"}

_SIDES = (("te", "train"), ("sglang", "rollout"))


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Once a compile, for the sides that are asked for and have something to decide."""
    contract = binding.contract
    if not any(entry.decision.is_quantized for entry in contract.entries):
        return
    missing = [side for target, side in _SIDES if contract.wants(target) and not getattr(contract, side).stated]
    if missing:
        layout = getattr(contract, missing[0])
        yield info(
            CODE,
            f"no {listed([f'`{side}:`' for side in missing])} layout is stated: gpu={layout.gpu}, all sizes 1 assumed",
            binding.policy.source.span(0, 0),
            help=f"write {listed([f'`{EXAMPLES[side]}`' for side in missing])}, "
            f"or pass {listed([f'--{side}' for side in missing])}",
        )
