"""Experts that a checkpoint stacks in one tensor, and that the trainer holds one by one: which slice, in which order.

The slice of expert 3 is called `NAME[3]`, after the tensor that it is of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from precc.graph.model import EXPERT, Tensor
from precc.syntax.words import Role

if TYPE_CHECKING:
    import torch

SLICE = f"[{EXPERT}]"
_SLICE = re.compile(r"\[(\d+)\]$")
_BIAS = "_bias"


@dataclass(frozen=True, slots=True)
class Stacking:
    """How the slices of a stacked tensor differ from the trainer's parameters.

    `parts` weights stand in each, gate and up or one; in the trainer one after the other, in the checkpoint in turn if
    `interleaved`. A `transposed` slice is `[input, output]`.
    """

    parts: int
    transposed: bool
    interleaved: bool

    def to_checkpoint(self, parameter: torch.Tensor) -> torch.Tensor:
        """One expert's parameter as its slice."""
        import torch

        if self.interleaved:
            parameter = torch.stack(parameter.chunk(self.parts), 1).flatten(0, 1)
        return (parameter.t() if self.transposed else parameter).contiguous()

    def to_trainer(self, stored: torch.Tensor) -> torch.Tensor:
        """A slice as the parameter of its expert."""
        import torch

        if self.transposed:
            stored = stored.t()
        return torch.cat([stored[at :: self.parts] for at in range(self.parts)]) if self.interleaved else stored


def stacked_weight(tensor: Tensor) -> tuple[str, ...]:
    """The path of the stacked weight that a tensor is, or is the bias of; empty for one that is no stack."""
    if tensor.stacked:
        return tensor.path
    *parents, last = tensor.path
    is_bias = Role.ROUTED_EXPERTS in tensor.within and not tensor.parameter and last.endswith(_BIAS)
    return (*parents, last.removesuffix(_BIAS)) if is_bias else ()


def sliced(tensor: Tensor) -> tuple[tuple[int, ...], Stacking]:
    """The shape of one expert's parameter, and how its slice is ordered. `tensor` is a stack, or one of biases."""
    _, *shape = tensor.shape
    transposed = tensor.contracted == (1,)
    parts = 2 if tensor.part == "gate_up" or tensor.interleaved else 1
    return tuple(reversed(shape)) if transposed else tuple(shape), Stacking(parts, transposed, tensor.interleaved)


def read_slice(name: str) -> tuple[str, int | None]:
    """The tensor that a name is a slice of, and the expert's number; None for the name of a whole tensor."""
    found = _SLICE.search(name)
    return (name[: found.start()], int(found[1])) if found else (name, None)


def slice_of(name: str, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """A tensor by its name; a slice also out of the tensor that it is of. Raises KeyError."""
    whole, expert = read_slice(name)
    return tensors[name] if expert is None or name in tensors else tensors[whole][expert]
