"""The tensors that have come and wait for others of their group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from precc.quant.checks import NotFinite, require_finite
from precc_converter.conversion.group import DTYPES
from precc_converter.live.arrivals import Arrivals, Group
from precc_converter.live.refusals import CameTwice, NotFiniteTensor, WrongTensor
from precc_converter.trainer.stacks import read_slice
from precc_converter.trainer.values import WrongShape
from precc_converter.written import StoredTensor

_WIDENED = {torch.float32: (torch.bfloat16, torch.float16)}
"""What is exact in a wider dtype is taken for it: norms that a checkpoint stores in FP32 and a trainer in BF16."""


@dataclass
class _Stack:
    """A tensor of all experts of a layer, filled as they come: these have."""

    tensor: Tensor
    experts: set[int] = field(default_factory=set)


_NONE = _Stack(torch.empty(0))


class Inbox:
    """The open groups of one session, and the names that have arrived in it.

    Tensors are held as they came until `keep` copies them; a group leaves as soon as it is complete.
    """

    def __init__(self, arrivals: Arrivals) -> None:
        self._sources = arrivals.sources
        self._open: dict[str, dict[str, Tensor]] = {}
        self._stacks: dict[str, _Stack] = {}
        self._borrowed: set[str] = set()
        self.arrived: set[str] = set()

    @property
    def groups(self) -> int:
        """How many groups wait for tensors, or for experts of a stack."""
        return len(self._open.keys() | {self._sources[name][0].source_names[0] for name in self._stacks})

    @property
    def bytes(self) -> int:
        """What they hold."""
        whole = sum(tensor.nbytes for held in self._open.values() for tensor in held.values())
        return whole + sum(stack.tensor.nbytes for stack in self._stacks.values())

    def put(self, name: str, tensor: Tensor) -> tuple[Group, dict[str, Tensor]] | None:
        """This takes one tensor of the checkpoint, or the slice of one, and answers with the group that it completes.

        Raises CameTwice, WrongTensor, WrongShape, NotFiniteTensor; KeyError for a name that no source has.
        """
        whole, expert = read_slice(name)
        if expert is not None:
            stack = self._put_slice(name, whole, expert, tensor)
            return None if stack is None else self.put(whole, stack)
        group, wanted = self._sources[name]
        if name in self._stacks:
            raise CameTwice(f"`{name}` came after slices of it in this session; each tensor comes once a step")
        if name in self.arrived:
            raise CameTwice(f"`{name}` came a second time in this session; each tensor comes once a step")
        tensor = checked(name, tensor, wanted)
        key = group.source_names[0]
        held = self._open.setdefault(key, {})
        held[name] = tensor
        self.arrived.add(name)
        self._borrowed.add(key)
        return (group, self._open.pop(key)) if len(held) == len(group.source_names) else None

    def _put_slice(self, name: str, whole: str, expert: int, tensor: Tensor) -> Tensor | None:
        """This takes one expert's slice; the stack, once it has all of them."""
        wanted = self._sources[whole][1]
        experts, *shape = wanted.shape
        tensor = checked(name, tensor, wanted._replace(shape=tuple(shape)))
        if whole in self.arrived or expert in self._stacks.get(whole, _NONE).experts:
            raise CameTwice(f"`{name}` came a second time in this session; each tensor comes once a step")
        if whole not in self._stacks:
            self._stacks[whole] = _Stack(tensor.new_empty(wanted.shape))
        stack = self._stacks[whole]
        stack.tensor[expert] = tensor
        stack.experts.add(expert)
        return self._stacks.pop(whole).tensor if len(stack.experts) == experts else None

    def keep(self) -> None:
        """This makes what waits independent of the memory that it came in."""
        for key in self._borrowed & self._open.keys():
            self._open[key] = {name: tensor.clone() for name, tensor in self._open[key].items()}
        self._borrowed.clear()


def checked(name: str, tensor: Tensor, wanted: StoredTensor) -> Tensor:
    """This is the tensor, detached, in the dtype that the contract was compiled for.

    Raises WrongTensor, WrongShape, NotFiniteTensor.
    """
    dtype = DTYPES[wanted.dtype]
    if tensor.dtype != dtype and tensor.dtype not in _WIDENED.get(dtype, ()):
        raise WrongTensor(
            f"`{name}` is {_word(tensor.dtype)}, the contract was compiled for {_word(dtype)}; "
            "hand over what the trainer computes with, unrounded"
        )
    if tuple(tensor.shape) != wanted.shape:
        raise WrongShape(name, tensor.shape, wanted.shape, _whole(tensor.shape, wanted.shape))
    if not is_finite(tensor):
        raise NotFiniteTensor(
            f"`{name}` holds {_wrong_values(tensor)}; nothing that was exported in this session is to be served"
        )
    return tensor.detach().to(dtype)


def _whole(shape: Sequence[int], wanted: Sequence[int]) -> str:
    """What to do with a tensor of another shape: more rows are padding, anything else is a shard."""
    padded = len(shape) == len(wanted) and shape[1:] == wanted[1:] and shape[0] > wanted[0]
    return "; leave out the rows that only pad it" if padded else "; gather its shards first"


def _wrong_values(tensor: Tensor) -> str:
    """How many values of a tensor are no numbers, and the first of them with its place."""
    try:
        require_finite(tensor.detach())
    except NotFinite as problem:
        return problem.described
    raise AssertionError("all of them are numbers")


def is_finite(tensor: Tensor) -> bool:
    """Whether all values are numbers; without a mask as large as the tensor."""
    if tensor.numel() == 0 or not tensor.is_floating_point():
        return True
    least, most = torch.aminmax(tensor.detach())
    return bool(least.isfinite() & most.isfinite())


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
