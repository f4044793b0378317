"""The smallest change of a contract with which Miles' stages would agree: some tensors in BF16, or in the run's format.

Found by trying: what differs is decided otherwise, flags are chosen again, and what then differs is added, until
nothing does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from precc.contract import Contract, Entry
from precc.contract.wording import tensors_of
from precc.formats import Decision
from precc.formats.decision import BF16
from precc_miles.choosing import choose
from precc_miles.forms import form_of
from precc_miles.stages import decided

ROUNDS = 4
"""After so many rounds a change is no small one."""

Change = Mapping[Decision, list[Entry]]
"""The entries of a contract, as they are, that would have to be decided so."""

_Choice = Callable[[Entry], Decision]


def nearest(contract: Contract) -> Change | None:
    """The change of fewest tensors; None if none of those that are tried is enough."""
    found = [change for choice in _choices(contract) if (change := _changed(contract, choice)) is not None]
    return min(found, key=lambda change: sum(map(tensors_of, change.values())), default=None)


def agrees_without(contract: Contract, layers: Collection[int]) -> bool:
    """Whether all stages would agree, were nothing quantized in some whole decoder layers."""
    held = {n: entry for n, entry in enumerate(contract.entries) if entry.tensor.layer in layers}
    return not _apart(
        _with(contract, {n: replace(entry, decision=BF16) for n, entry in held.items() if entry.decision.is_quantized})
    )


def _choices(contract: Contract) -> Iterator[_Choice]:
    """How what differs could be decided: BF16, as most tensors in the run's format are, or whichever it is not."""
    low = _most_common(contract)
    yield lambda _: BF16
    if low is not None:
        quantized: Decision = low
        yield lambda _: quantized
        yield lambda entry: BF16 if entry.decision.is_quantized else quantized


def _most_common(contract: Contract) -> Decision | None:
    form = form_of(contract)
    counted: Counter[Decision] = Counter()
    for entry in contract.quantized():
        if form is not None and entry.decision.weight.format == form.name:
            counted[entry.decision] += entry.tensor.count
    return next((decision for decision, _ in counted.most_common(1)), None)


def _changed(contract: Contract, choice: _Choice) -> Change | None:
    """The entries that differ under ever more changes of one kind, until none does; None if that does not end."""
    changed: dict[int, Entry] = {}
    for _ in range(ROUNDS):
        tried = _with(contract, changed)
        apart = _apart(tried)
        if not apart:
            return _grouped(contract, changed) if any(True for _ in tried.quantized()) else None
        more = {n: choice(contract.entries[n]) for n in apart if n not in changed}
        more = {n: decision for n, decision in more.items() if contract.entries[n].decision != decision}
        if not more or not all(contract.entries[n].tensor.is_gemm for n in more):
            return None
        changed |= {n: replace(contract.entries[n], decision=decision) for n, decision in more.items()}
    return None


def _apart(contract: Contract) -> list[int]:
    """The entries with which some stage would do otherwise than decided, by their numbers."""
    run = choose(contract)
    stages = run.stages(contract)
    return [n for n, entry in enumerate(contract.entries) if stages[n] != decided(entry, run.drafts)]


def _grouped(contract: Contract, changed: Mapping[int, Entry]) -> Change:
    groups: dict[Decision, list[Entry]] = {}
    for number in sorted(changed):
        groups.setdefault(changed[number].decision, []).append(contract.entries[number])
    return groups


def _with(contract: Contract, changed: Mapping[int, Entry]) -> Contract:
    return replace(contract, entries=tuple(changed.get(n, entry) for n, entry in enumerate(contract.entries)))
