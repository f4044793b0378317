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

from collections.abc import Iterator, Mapping
from dataclasses import replace

from precc.contract import Contract
from precc.contract.wording import listed
from precc.diagnostics import Diagnostic, Severity, info
from precc.resolve.bind import Binding
from precc.rules.binding import p510_impossible_layout as p510
from precc.rules.contract import p302_block_does_not_divide_after_sharding as p302

CODE = "P507"
NAME = "assumed-layout"
SEVERITY = Severity.INFO

RANKS = (8, 4, 2)
"""How many ranks a proposed layout has, the first that the model and the policy can be run with; else one."""

_SIDES = (("te", "train"), ("sglang", "rollout"))


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Once a compile, for the sides that are asked for and have something to decide."""
    contract = binding.contract
    if not any(entry.decision.is_quantized for entry in contract.entries):
        return
    missing = [side for target, side in _SIDES if contract.runs(target) and not getattr(contract, side).stated]
    if missing:
        layout = getattr(contract, missing[0])
        yield info(
            CODE,
            f"no {listed([f'`{side}:`' for side in missing])} layout is stated: gpu={layout.gpu}, all sizes 1 assumed",
            binding.policy.source.span(0, 0),
            help=f"write {listed([f'`{side}: {_words(proposal(contract, side))}`' for side in missing])}, "
            f"or pass {listed([f'--{side}' for side in missing])}",
        )


def proposal(contract: Contract, side: str) -> Mapping[str, str]:
    """The settings of a layout that no rule has anything against, as an example of what to write."""
    sizes = (_sizes(contract, side, ranks) for ranks in RANKS)
    return next((made for made in sizes if _runs(contract, side, made)), _sizes(contract, side, 1))


def _sizes(contract: Contract, side: str, ranks: int) -> dict[str, str]:
    """A trainer splits experts and nothing else; a server splits everything but the experts, which it deals out."""
    gpu, each, whole = getattr(contract, side).gpu, str(ranks), "1"
    if side == "train":
        return {"gpu": gpu, "tp": whole, "pp": whole, "ep": each if contract.model.expert_count else whole}
    return {"gpu": gpu, "tp": each, **({"ep": each} if contract.model.expert_count else {})}


def _runs(contract: Contract, side: str, sizes: Mapping[str, str]) -> bool:
    """Whether the sizes are possible, and leave whole blocks to each rank."""
    tried = replace(contract, **{side: getattr(contract, side).with_settings(sizes)})
    problems = p510.train_problems(tried) if side == "train" else p510.rollout_problems(tried)
    return not any(problems) and not any(p302.check(tried))


def _words(sizes: Mapping[str, str]) -> str:
    return " ".join(f"{key}={size}" for key, size in sizes.items())
