"""What has to arrive before everything that the contract promises can be written: by group, dtype and shape."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from precc.contract import Contract
from precc.graph.forms import Form
from precc.graph.model import Tensor
from precc_converter.conversion.units import Unit, uncollected, units_of
from precc_converter.written import StoredTensor

TRAINED_DTYPE = "bf16"
"""What a trainer holds where the checkpoint that the contract was compiled for stores FP8 blocks."""

LOADED_TOGETHER = (".qkv_a",)
"""How the names of SGLang's fused linear layers end whose parts its loader joins itself, within one call of
`load_weights` and no longer: a part that comes in a call without the others is dropped, silently."""


@dataclass(frozen=True)
class Group:
    """What leaves together: the tensors of one unit, or of those that the server's loader has to get in one call."""

    units: tuple[Unit, ...]

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        """Everything that has to be there before it can leave."""
        return tuple(name for unit in self.units for name in unit.source_names)


@dataclass(frozen=True)
class Arrivals:
    """The groups of a contract, and each source tensor by name with its group and what it has to be."""

    groups: tuple[Group, ...]
    sources: dict[str, tuple[Group, StoredTensor]]

    def missing(self, arrived: Collection[str]) -> list[str]:
        """The names that have not arrived, in the order of the groups."""
        return [name for name in self.sources if name not in arrived]


def arrivals_of(contract: Contract, without: Collection[str] = ()) -> Arrivals:
    """This lists what a trainer hands over under a contract; `without` are towers that it does not have (`mtp`).

    Raises KeyError for a format that the converter lacks, ValueError for a tower that the model lacks.
    """
    trained = as_trained(contract, without)
    together = dict(_together(trained))
    found: dict[str, list[Unit]] = {}
    with uncollected():
        for unit in units_of(trained):
            found.setdefault(together.get(unit.name, unit.name), []).append(unit)
        groups = tuple(Group(tuple(units)) for units in found.values())
        sources = {
            name: (group, stored)
            for group in groups
            for unit in group.units
            for member in unit.members
            for name, stored in member.sources
        }
    return Arrivals(groups, sources)


def _together(contract: Contract) -> Iterator[tuple[str, str]]:
    """The tensors that a server's loader needs in one call, with the name of the layer that it joins them to."""
    for tensor in contract.tensors:
        fused = dict(tensor.fused).get("sglang", "")
        if fused.endswith(LOADED_TOGETHER):
            yield tensor.name, fused


def as_trained(contract: Contract, without: Collection[str] = ()) -> Contract:
    """This is the same contract for the trainer's weights: FP8 sources are BF16, the decisions are unchanged."""
    outer = {tensor.outer.value for tensor in contract.tensors if tensor.outer is not None}
    if unknown := sorted(set(without) - outer):
        held = ", ".join(sorted(outer)) or "none"
        raise ValueError(f"this model has no `{unknown[0]}` to export without; it has: {held}")
    kept = (
        entry for entry in contract.entries if entry.tensor.outer is None or entry.tensor.outer.value not in without
    )
    entries = tuple(replace(entry, tensor=_trained(entry.tensor)) for entry in kept)
    model = replace(contract.model, tensors=tuple(entry.tensor for entry in entries))
    return replace(contract, model=model, entries=entries)


def _trained(tensor: Tensor) -> Tensor:
    return replace(tensor, form=Form(TRAINED_DTYPE)) if tensor.form.is_quantized else tensor
