"""Where a block scale lies in memory: linear, or in the 128×4 tiles that Blackwell's matrix instructions read.

A tile holds 128 rows × 4 columns in 512 bytes: row r and column c at (r mod 32)·16 + (r div 32)·4 + c, as cuBLAS
documents for block-scaled formats. Tiles follow each other along the columns, then the rows. Rows are padded to 128
and columns to 4, with zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

TILE = (128, 4)
_QUARTER = 32
"""Rows of a tile that follow each other 16 bytes apart; the four quarters of a tile interleave."""


def swizzled(scales: Tensor) -> Tensor:
    """Linear scales [..., rows, columns] in tiles: [..., padded rows, padded columns], contiguous, same dtype."""
    *lead, rows, columns = scales.shape
    high, wide = padded(rows, columns)
    linear = scales.new_zeros((*lead, high, wide))
    linear.view(torch.uint8)[..., :rows, :columns] = scales.view(torch.uint8)
    tiles = linear.view(*lead, high // TILE[0], TILE[0] // _QUARTER, _QUARTER, wide // TILE[1], TILE[1])
    return _exchanged(tiles).reshape(*lead, high, wide)


def linear(tiles: Tensor, rows: int, columns: int) -> Tensor:
    """Swizzled scales back in rows, without the padding: [..., rows, columns]. Any shape of the right size will do.

    Raises ValueError where the size is not that of `rows` × `columns`, padded.
    """
    high, wide = padded(rows, columns)
    lead = tiles.shape[:-2] if tiles.shape[-2:] == (high, wide) else tiles.shape[:-1]
    if tiles.numel() != high * wide * lead.numel():
        raise ValueError(f"{tuple(tiles.shape)} does not hold {rows} × {columns} scales in 128×4 tiles")
    opened = tiles.reshape(*lead, high // TILE[0], wide // TILE[1], _QUARTER, TILE[0] // _QUARTER, TILE[1])
    return _exchanged(opened).reshape(*lead, high, wide)[..., :rows, :columns].contiguous()


def padded(rows: int, columns: int) -> tuple[int, int]:
    """The rows and columns that tiles of 128×4 cover."""
    return -(-rows // TILE[0]) * TILE[0], -(-columns // TILE[1]) * TILE[1]


def _exchanged(tiles: Tensor) -> Tensor:
    """[..., row tile, quarter, row, column tile, column] ↔ [..., row tile, column tile, row, quarter, column]."""
    return tiles.transpose(-4, -2)
