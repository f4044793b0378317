"""A contract for a small model of the same structure, every decision carried over.

    small = shrunken(contract)             # all layers; as many experts as there are decisions for, at least a few
    small = shrunken(contract, layers=6)   # six of its layers, one for each way in which layers are decided

`small.config` is the `config.json` of the small model, `small.contract` is emitted, converted and judged as any other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from precc.contract.contract import Contract
from precc.contract.entry import Entry
from precc.graph.errors import ModelError
from precc.graph.model import Tensor
from precc.graph.shrinking import Small, opened, shrink_to


@dataclass(frozen=True)
class SmallContract:
    """A contract for a small model, the model's `config.json`, and which layers and experts it stands for.

    `origins` are the entries of the large contract that the small one's stand for, in its order.
    """

    contract: Contract
    config: dict[str, Any]
    origins: tuple[Entry, ...]
    layers: tuple[int, ...]
    experts: tuple[int, ...]


def shrunken(contract: Contract, layers: int | None = None) -> SmallContract:
    """This carries a contract over to a small model; layouts, targets and the KV cache stay.

    Raises ModelError where `layers` are too few to keep one layer for each way in which layers are decided.
    """
    kept = _kept_layers(contract, layers)
    small = shrink_to(contract.model, kept, _first_experts(contract.entries))
    pairs = tuple(_entries(small, contract.entries))
    entries = tuple(entry for entry, _ in pairs)
    graph = replace(small.graph, tensors=tuple(entry.tensor for entry in entries))
    carried = replace(contract, model=graph, entries=entries)
    return SmallContract(carried, small.config, tuple(large for _, large in pairs), small.layers, small.experts)


def _first_experts(entries: Iterable[Entry]) -> set[int]:
    """The first expert of every range that is decided for itself."""
    return {entry.tensor.experts.start for entry in entries if entry.tensor.experts is not None}


def _entries(small: Small, entries: Iterable[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """The entries of the small model, each with the large one that it stands for."""
    decided: dict[tuple[int | None, tuple[object, ...]], list[Entry]] = {}
    for entry in entries:
        decided.setdefault((entry.tensor.layer, opened(entry.tensor)), []).append(entry)
    for tensor in small.graph.tensors:
        layer = None if tensor.layer is None else small.layers[tensor.layer]
        for entry in decided[layer, opened(tensor)]:
            yield replace(entry, tensor=_like(tensor, entry.tensor, small.experts)), entry


def _like(small: Tensor, large: Tensor, experts: Sequence[int]) -> Tensor:
    """The small tensor for the experts that a large one stands for, stored as that is."""
    kept = small.experts
    if large.experts is not None:
        positions = [position for position, expert in enumerate(experts) if expert in large.experts]
        kept = range(positions[0], positions[-1] + 1)
    return replace(small, experts=kept, form=large.form)


# --- which layers ------------------------------------------------------------------------------------


def _kept_layers(contract: Contract, wanted: int | None) -> Sequence[int]:
    """All layers, or so many of them that every way in which a layer is decided is among them."""
    model = contract.model
    if wanted is None or wanted >= model.layers:
        return range(model.layers)
    kept = sorted(_first_alike(contract))
    if len(kept) > wanted:
        raise ModelError(
            f"{model.name}: its layers are decided in {len(kept)} ways, which {wanted} layers cannot show",
            f"Keep {len(kept)} layers or more.",
        )
    others = [layer for layer in range(model.layers) if layer not in kept]
    return sorted((*kept, *others[: wanted - len(kept)]))


def _first_alike(contract: Contract) -> set[int]:
    """The first layer of each way in which layers are decided."""
    layers: dict[int, list[Hashable]] = {}
    for entry in contract.entries:
        if entry.tensor.layer is not None:
            layer = layers.setdefault(entry.tensor.layer, [])
            layer.append((opened(entry.tensor), entry.tensor.experts, entry.decision))
    first: dict[tuple[Hashable, ...], int] = {}
    for number, content in sorted(layers.items()):
        first.setdefault(tuple(content), number)
    return set(first.values())
