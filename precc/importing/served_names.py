"""What a server calls the modules of a model: a fused one, an expert layer, those of its draft model.

Files that were written for a server, or by one, may have these names in the place of the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from precc.backend import find_backend
from precc.front import read_policy
from precc.graph.model import EXPERT, ModelGraph
from precc.importing.patterns import Pattern
from precc.resolve.bind import bind
from precc.source import SourceFile


class ServedNames:
    """The names that SGLang has for the modules of one model, asked for when an entry reaches nothing by its own."""

    def __init__(self, graph: ModelGraph) -> None:
        self._graph = graph

    def standing_for(self, entry: Callable[[str], bool]) -> Pattern | None:
        """The pattern for the tensors of every module whose name an entry accepts; None where it accepts none."""
        modules = frozenset(module for name, held in self._modules.items() if entry(name) for module in held)
        return Pattern(modules.__contains__, by_expert=False) if modules else None

    @cached_property
    def _modules(self) -> Mapping[str, list[str]]:
        """Each name of a module, or of a part of it, with the tensors that are in it; the first of all experts."""
        found: dict[str, list[str]] = {}
        for name, module in self._named():
            found.setdefault(name, []).append(module)
        return found

    def _named(self) -> Iterator[tuple[str, str]]:
        backend = find_backend("sglang")
        policy, _ = read_policy(SourceFile("", "default: bf16\n"))
        contract = bind(policy, self._graph).contract
        for entry in contract.entries:
            name, module = backend.names(contract, entry).get("sglang"), next(entry.tensor.modules())
            if name is not None and EXPERT not in name and name != module:
                yield name, module
                if entry.tensor.experts is None:
                    yield f"{name.rpartition('.')[0]}.{entry.tensor.path[-1]}", module
