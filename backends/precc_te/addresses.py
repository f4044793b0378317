"""Which linear layer of a contract a path of a built Megatron model is."""

from __future__ import annotations

import re
from functools import cached_property

from precc.contract import Contract, Entry
from precc_te.modules import modules_of
from precc_te.names import Module, paths
from precc_te.precision import TePrecision

_EXPERT = re.compile(r"(?<=local_experts\.)\d+(?=\.)")


class Addresses:
    """The paths of a contract's linear layers, with global numbers of decoder layers and any number of an expert.

    `inner` is the name of an MTP layer's inner layer in the Megatron that built the model.
    """

    def __init__(self, contract: Contract, inner: str) -> None:
        self.modules = modules_of(contract)
        self._inner = inner

    @cached_property
    def _by_path(self) -> dict[str, Module]:
        found: dict[str, Module] = {}
        for module in self.modules.precisions:
            layer = module.layer or 0
            for head, tail in paths(module, range(layer, layer + 1), self._inner):
                found[f"{head}*{tail}" if tail else head] = module
        return found

    @cached_property
    def entries(self) -> dict[Module, list[Entry]]:
        """The entries of each linear layer."""
        found: dict[Module, list[Entry]] = {}
        for line in self.modules.lines:
            if line.module is not None and isinstance(line.precision, TePrecision):
                found.setdefault(line.module, []).append(line.entry)
        return found

    def module(self, path: str) -> Module | None:
        """The linear layer at a path; None if the contract has no tensor there."""
        return self._by_path.get(any_expert(path))


def any_expert(path: str) -> str:
    """A path with the number of a sequential expert left open."""
    return _EXPERT.sub("*", path)
