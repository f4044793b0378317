"""One SHA-256 over named tensors, in whatever order and buckets they come: two sides that hold the same agree on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

from precc_converter.live.refusals import WrongTensor

if TYPE_CHECKING:
    from torch import Tensor

Named: TypeAlias = "Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]"
"""Tensors by name, as a mapping or as pairs."""


def fingerprint(tensors: Named) -> str:
    """This is the fingerprint of a set of tensors: of every name, dtype, shape and byte. Raises ValueError on a name
    that comes twice.
    """
    digests: dict[str, bytes] = {}
    for name, tensor in pairs(tensors):
        if name in digests:
            raise ValueError(f"`{name}` came twice: a fingerprint is of a set of tensors")
        digests[name] = tensor_digest(name, tensor)
    return combined(digests)


def combined(digests: Mapping[str, bytes]) -> str:
    """The fingerprint of tensors whose digests are known: the hash of those, in the order of the names."""
    total = sha256()
    for name in sorted(digests):
        total.update(digests[name])
    return total.hexdigest()


def tensor_digest(name: str, tensor: Tensor) -> bytes:
    """The hash of one tensor: one line of JSON with its name, dtype and shape, then its bytes in row-major order."""
    import torch

    facts = [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
    digest = sha256(json.dumps(facts).encode() + b"\n")
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
    digest.update(flat.numpy().data)
    return digest.digest()


def pairs(tensors: Named) -> Iterable[tuple[str, Tensor]]:
    """The tensors with their names. Raises WrongTensor for what is neither a mapping nor made of pairs."""
    if isinstance(tensors, Mapping):
        return tensors.items()
    if isinstance(tensors, str | bytes) or not isinstance(tensors, Iterable):
        raise WrongTensor(f"a {type(tensors).__name__} came, {_TAKEN}")
    return map(_pair, tensors)


_TAKEN = "where tensors come by name: a mapping, or an iterable of pairs of name and tensor"


def _pair(pair: object) -> tuple[str, Tensor]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise WrongTensor(f"a {type(pair).__name__} came for a pair, {_TAKEN}")
    return pair[0], pair[1]
