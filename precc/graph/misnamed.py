"""What is said of a name that is not where it should be: the nearest one, and the number that is too high."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from precc.graph.errors import nearest, or_list
from precc.graph.model import EXPERT, ModelGraph, Tensor

_ANOTHER = "Is a shard missing, or is `config.json` another model's?"
_ORIGINAL = "A checkpoint quantized by another tool has to be given in its original form."


def help_for_missing(name: str, strays: Iterable[str]) -> str:
    """What to do about a tensor that is not stored; `strays` are the stored names that nothing explains."""
    near = nearest(name, _beside(name, strays), 1)
    return (f"The nearest stored name that nothing explains is {or_list(near)}. " if near else "") + _ANOTHER


def help_for_stray(name: str, graph: ModelGraph) -> str:
    """What to do about a stored name that a model does not explain."""
    beyond = _beyond(name, graph)
    if beyond:
        return f"`config.json` has {beyond}. Is it another model's?"
    near = nearest(name, _beside(name, _names_like(name, graph.tensors)), 1)
    return (f"The nearest name it knows is {or_list(near)}. " if near else "") + _ORIGINAL


# --- the nearest name --------------------------------------------------------------------------------


def _beside(name: str, names: Iterable[str]) -> Iterator[str]:
    """The names in the same layer, or outside all layers: comparing with all 92,000 would take seconds."""
    layer = _layer(name)
    return (other for other in names if _layer(other) == layer)


def _layer(name: str) -> list[str]:
    """The components up to the first number; none for what stands outside all layers."""
    words = name.split(".")
    number = next((at for at, word in enumerate(words) if word.isdecimal()), None)
    return [] if number is None else words[: number + 1]


def _names_like(name: str, tensors: Sequence[Tensor]) -> Iterator[str]:
    """Every known name, of the experts that one whose number stands in `name`."""
    number = re.search(r"experts\.(\d+)", name)
    for tensor in tensors:
        path = ".".join(tensor.path).replace(EXPERT, number[1] if number else EXPERT)
        yield f"{path}.{tensor.parameter}" if tensor.parameter else path


# --- a number that is too high -----------------------------------------------------------------------


def _beyond(name: str, graph: ModelGraph) -> str:
    """How many there are of what a name has a higher number of; empty where each of its numbers is known."""
    words = name.split(".")
    for at, word in enumerate(words):
        if word.isdecimal():
            known = [tensor for tensor in graph.tensors if _is_numbered(tensor, words[:at])]
            if known and all(word not in _numbers(tensor, at) for tensor in known):
                return _counted(words[:at], known, graph)
    return ""


def _is_numbered(tensor: Tensor, stem: Sequence[str]) -> bool:
    """Whether the tensor's name is the stem, a number, and more."""
    path, end = tensor.path, len(stem)
    return len(path) > end and path[:end] == tuple(stem) and (path[end] == EXPERT or path[end].isdecimal())


def _numbers(tensor: Tensor, at: int) -> set[str]:
    return {tensor.path[at]} if tensor.experts is None or tensor.path[at] != EXPERT else {*map(str, tensor.experts)}


def _counted(stem: Sequence[str], known: Sequence[Tensor], graph: ModelGraph) -> str:
    """`3 layers and 1 MTP layer`, `128 experts`, or so many of what the stem names."""
    numbers = {number for tensor in known for number in _numbers(tensor, len(stem))}
    if any(tensor.path[len(stem)] == EXPERT for tensor in known):
        return f"{len(numbers):,} experts a layer"
    if all(tensor.layer is None and tensor.mtp is None for tensor in known):
        return f"{len(numbers):,} of `{'.'.join(stem)}`"
    counts = [(graph.layers, "layer"), *([(graph.mtp_layers, "MTP layer")] if "num_mtp_layers" in graph.config else [])]
    return " and ".join(f"{count:,} {what}{'s' * (count != 1)}" for count, what in counts)
