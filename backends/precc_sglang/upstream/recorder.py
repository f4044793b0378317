"""Where the values of a checkpoint go: every operation on its tensors is seen, down to the parameters they end in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from precc_sglang.upstream.wire import Cast

Storage = int
Origins = dict[str, torch.dtype | None]
"""Checkpoint tensors by name, each with the dtype that its values were converted from, if they were."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, each storage is known by the checkpoint tensors that its values come from.

    A view shares its storage; a copy, a concatenation or a conversion hands its origins on; what is written into a
    parameter was read. Values taken out as Python numbers were read, too.
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor], dtype_word: Mapping[torch.dtype, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: set[str] = set()
        self._casts: dict[Cast, None] = {}
        self._words = dtype_word
        self._parameters = parameters
        self._names = {_storage(value): name for name, value in parameters.items()}
        self._origins: dict[Storage, Origins] = {}
        self._alive: list[torch.Tensor] = []

    @property
    def casts(self) -> tuple[Cast, ...]:
        """The conversions, in the order in which they were seen."""
        return tuple(self._casts)

    def watch(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """The same weights, known by their names from now on."""
        for name, tensor in weights:
            self._alive.append(tensor)
            self._origins[_storage(tensor)] = {name: None}
            yield name, tensor

    def finish(self) -> None:
        """Call at the end: a parameter may have been given a checkpoint tensor as its storage."""
        for value in self._parameters.values():
            self.read.update(self._origins.get(_storage(value), ()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        inputs = [value for value in tree_iter((args, kwargs or {})) if isinstance(value, torch.Tensor)]
        sources = [value for value in inputs if _storage(value) in self._origins]
        if sources:
            self._follow(func, inputs, sources, answer)
        return answer

    def _follow(self, func: Any, inputs: list[torch.Tensor], sources: list[torch.Tensor], answer: Any) -> None:
        if func is torch.ops.aten._local_scalar_dense.default:
            self.read.update(*(self._origins[_storage(source)] for source in sources))
            return
        written = inputs[:1] if func._schema.is_mutable else []
        outputs = [value for value in tree_iter(answer) if isinstance(value, torch.Tensor)]
        for target in (*written, *outputs):
            origins = self._handed_on(sources, target)
            if _storage(target) in self._names:
                self._arrive(self._names[_storage(target)], origins, target.dtype)
            elif _storage(target) not in {_storage(source) for source in sources}:
                self._alive.append(target)
                self._origins.setdefault(_storage(target), {}).update(origins)

    def _handed_on(self, sources: Iterable[torch.Tensor], target: torch.Tensor) -> Origins:
        """The origins of sources, with the dtype of values that the operation converts (a view of the bits, or a
        sum over other storages, converts nothing)."""
        handed: Origins = {}
        for source in sources:
            converts = source.dtype != target.dtype and _storage(source) != _storage(target)
            for name, before in self._origins[_storage(source)].items():
                handed[name] = before or (source.dtype if converts else None)
        return handed

    def _arrive(self, parameter: str, origins: Origins, held: torch.dtype) -> None:
        self.read.update(origins)
        for name, before in origins.items():
            if before is not None and before != held:
                self._casts[Cast(name, parameter, self._word(before), self._word(held))] = None

    def _word(self, dtype: torch.dtype) -> str:
        return self._words.get(dtype, str(dtype))


def _storage(tensor: torch.Tensor) -> Storage:
    return int(tensor.untyped_storage()._cdata)
