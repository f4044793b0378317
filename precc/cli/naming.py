"""One tensor by the name that a user writes, and what was meant where there is none."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from precc.cli.errors import UsageError
from precc.contract import Contract, Entry
from precc.graph.model import EXPERT, Tensor

NUMBER = "#"


class Asked(NamedTuple):
    """The entry that decides about one tensor, narrowed to it; `path` is that of the whole range of experts."""

    entry: Entry
    path: tuple[str, ...]


def ask(contract: Contract, name: str) -> Asked:
    """The entry of one tensor. An unknown name is a mistake, told with the nearest names."""
    entry = contract.find(name)
    if entry is None:
        raise UsageError(f"{contract.model.name} has no tensor `{name[:200]}`", _nearest(contract, name))
    path = entry.tensor.path
    if entry.tensor.experts is None:
        return Asked(entry, path)
    expert = int(name.split(".")[path.index(EXPERT)])
    return Asked(replace(entry, tensor=entry.tensor.narrowed(range(expert, expert + 1))), path)


def _nearest(contract: Contract, name: str) -> str:
    """The names most like it. Numbers are compared last: a layer or an expert out of range is told as such."""
    from difflib import get_close_matches

    kinds: dict[str, list[Tensor]] = {}
    for tensor in contract.tensors:
        kinds.setdefault(_kind(tensor), []).append(tensor)
    wanted = ".".join(NUMBER if word.isdecimal() else word for word in name.removesuffix(".weight").split("."))
    near = get_close_matches(wanted[:200], kinds, n=3, cutoff=0.6)
    if wanted in kinds:
        return f"there are {_extent(kinds[wanted])}"
    if not near:
        example = next((t for t in contract.tensors if t.layer is not None and t.is_gemm), contract.tensors[0])
        return f"names are those of the checkpoint, such as `{_first(example)}`"
    numbers = [word for word in name.split(".") if word.isdecimal()]
    return "did you mean " + " or ".join(f"`{_written(kinds[kind], numbers)}`" for kind in near) + "?"


def _kind(tensor: Tensor) -> str:
    words = tensor.path if tensor.parameter in ("", "weight") else (*tensor.path, tensor.parameter)
    return ".".join(NUMBER if word == EXPERT or word.isdecimal() else word for word in words)


def _written(tensors: list[Tensor], numbers: list[str]) -> str:
    """A name of this kind with the numbers that were written, where there is such a tensor."""
    words = _kind(tensors[0]).split(".")
    given = chain(numbers, ["0"] * len(words))
    name = ".".join(next(given) if word == NUMBER else word for word in words)
    return name if any(name == _first(t) or _could_be(t, name) for t in tensors) else _first(tensors[0])


def _could_be(tensor: Tensor, name: str) -> bool:
    words = name.split(".")
    if tensor.experts is None or len(words) != len(tensor.path):
        return False
    return all(
        int(word) in tensor.experts if own == EXPERT else own == word
        for own, word in zip(tensor.path, words, strict=True)
    )


def _first(tensor: Tensor) -> str:
    one = tensor if tensor.experts is None else tensor.narrowed(tensor.experts[:1])
    return one.name.removesuffix(".weight")


def _extent(tensors: list[Tensor]) -> str:
    layers = [tensor.layer for tensor in tensors if tensor.layer is not None]
    parts = [f"layers {min(layers)} to {max(layers)}"] if layers else [f"{len(tensors)} of these"]
    experts = [tensor.experts for tensor in tensors if tensor.experts is not None]
    if experts:
        parts.append(f"experts {min(e.start for e in experts)} to {max(e.stop for e in experts) - 1}")
    return " and ".join(parts)
