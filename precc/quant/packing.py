"""How codes below a byte lie in memory, and back."""

from __future__ import annotations

import torch
from torch import Tensor

CODES_A_WORD = 8
_ZERO = 8
"""What compressed-tensors stores for the integer 0: codes −8…7 as 0…15."""


def pack_e2m1(codes: Tensor) -> Tensor:
    """Two codes a byte, the even element in the low nibble: uint8 [..., columns] → uint8 [..., columns / 2]."""
    pairs = codes.reshape(*codes.shape[:-1], -1, 2)
    return pairs[..., 0] | (pairs[..., 1] << 4)


def unpack_e2m1(packed: Tensor) -> Tensor:
    """One code a byte again: uint8 [..., bytes] → uint8 [..., 2 · bytes]."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)


def pack_int4(integers: Tensor) -> Tensor:
    """Eight integers −8…7 a word, the first in the low nibble, each plus 8: → int32 [..., columns / 8].

    This is the dense packing of compressed-tensors (`pack-quantized`).
    """
    nibbles = integers.to(torch.int32).reshape(*integers.shape[:-1], -1, CODES_A_WORD) + _ZERO
    word = torch.zeros_like(nibbles[..., 0])
    for place in range(CODES_A_WORD):
        word |= nibbles[..., place] << (4 * place)
    return word


def unpack_int4(words: Tensor) -> Tensor:
    """Those integers again: int32 [..., words] → int8 [..., 8 · words]."""
    nibbles = [((words >> (4 * place)) & 0xF) - _ZERO for place in range(CODES_A_WORD)]
    return torch.stack(nibbles, dim=-1).flatten(-2).to(torch.int8)
