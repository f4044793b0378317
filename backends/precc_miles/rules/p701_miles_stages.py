"""Miles' flags would not say the same to converter, trainer, live export and rollout.

The four stages keep tensors in BF16 by lists and flags of their own, in three languages of names: what a converter
passes over, what the live export takes, which recipe a module matches, and which list ends up in the checkpoint. precc
chooses the flags that come nearest to a policy and reads them back by each stage's rules. Where a stage would still
differ, it names the stage, the tensors, and the smallest change with which all four would agree.

MXFP8 shows one: routed experts that the converter leaves out by name are not in the list that it writes for the server.

```prec expect=P701 model=qwen3-30b-a3b
default: mxfp8
layers[20]: bf16
train: pp=1
rollout: tp=1
targets: miles
```

Whole first and last layers are in the list, by their numbers:

```prec model=qwen3-30b-a3b
default: mxfp8
layers[-8:]: bf16
targets: miles
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names, listed, outer_layers
from precc.diagnostics import Diagnostic, Severity, error
from precc_miles.choosing import choose
from precc_miles.forms import why_not
from precc_miles.nearest import agrees_without, nearest
from precc_miles.profile import MAPPED, MILES
from precc_miles.stages import TITLES, Staged, decided

CODE = "P701"
NAME = "miles-stages"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """One finding for each way in which stages differ; silent where there are no flags to choose."""
    if contract.model.architecture not in MAPPED or _mixes(contract):
        return
    apart: dict[tuple[Staged, Staged], list[Entry]] = {}
    run = choose(contract)
    for entry, found in zip(contract.entries, run.stages(contract), strict=True):
        wanted = decided(entry, run.drafts)
        if found != wanted:
            apart.setdefault((wanted, found), []).append(entry)
    help = _help(contract, [entry for entries in apart.values() for entry in entries]) if apart else ""
    for (wanted, found), entries in apart.items():
        yield _finding(wanted, found, entries, help)


def _mixes(contract: Contract) -> bool:
    """Whether another rule has refused a format, so that there is no run to speak of."""
    decisions = {entry.decision for entry in contract.quantized()}
    formats = {decision.weight.format for decision in decisions}
    return len(formats) > 1 or any(map(why_not, decisions))


def _finding(wanted: Staged, found: Staged, entries: list[Entry], help: str) -> Diagnostic:
    stages = wanted.apart(found)
    others: dict[tuple[str, str], list[str]] = {}
    for stage in stages:
        others.setdefault((getattr(found, stage), getattr(wanted, stage)), []).append(TITLES[stage])
    said = (f"{listed(titles)} would have {a}, and the contract says {b}" for (a, b), titles in others.items())
    return error(
        CODE,
        f"no flags of Miles {MILES} say this on all stages: for {counted_names(entries)} {'; '.join(said)}",
        entries[0].span,
        help=help,
    )


def _help(contract: Contract, entries: list[Entry]) -> str:
    """The narrowest change that was found; and, where what is in BF16 ends the model, whole layers, if that is one."""
    change = nearest(contract)
    if change is None:
        return "compile for `te`, `sglang` and `converter` instead"
    so = listed([f"{counted_names(others)} in `{decision}`" for decision, others in change.items()])
    return f"Miles could say it with {so}{_or_whole_layers(contract, entries)}"


def _or_whole_layers(contract: Contract, entries: list[Entry]) -> str:
    high = {e.tensor.layer for e in entries if e.tensor.layer is not None and not e.decision.is_quantized}
    whole = outer_layers(high, contract.model.layers)
    return f", or with all of `{whole}` in `bf16`" if whole and agrees_without(contract, high) else ""
