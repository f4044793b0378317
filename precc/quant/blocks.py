"""Blocks of a weight: what is largest in each, and a value a block spread over its elements."""

from __future__ import annotations

import torch
from torch import Tensor

from precc.formats.table import Block


def block_amax(weight: Tensor, block: Block) -> Tensor:
    """The largest magnitude of each block: [..., rows, columns] → FP32 [..., ⌈rows/high⌉, ⌈columns/wide⌉].

    NaN counts as 0, as in CUDA's `fmaxf` from 0, and so does what lies beyond an edge.
    """
    high, wide = block
    *lead, rows, columns = weight.shape
    covered = (0, -columns % wide, 0, -rows % high)
    opened = torch.nn.functional.pad(magnitudes(weight), covered).view(*lead, -(-rows // high), high, -1, wide)
    return opened.amax((-3, -1))


def spread(values: Tensor, block: Block, rows: int, columns: int) -> Tensor:
    """One value a block → one an element: [..., rows, columns]."""
    high, wide = block
    return values.repeat_interleave(high, -2)[..., :rows, :].repeat_interleave(wide, -1)[..., :columns]


def magnitudes(weight: Tensor) -> Tensor:
    """|weight| as FP32, NaN as 0."""
    return weight.to(torch.float32).abs().nan_to_num(nan=0.0, posinf=torch.inf)
