"""What other writers store for the same formats: to compare with their checkpoints, never to write ours.

Each computes as its source does on a CPU. Weights are [rows, columns], finite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from precc.formats import FourOverSix
from precc.quant import four_over_six
from precc.quant.blocks import block_amax
from precc.quant.packing import pack_e2m1, pack_int4
from precc.quant.reference import Parts
from precc.quant.scales import divided, nvfp4_encode

_NVFP4_MAX = 2688.0
"""6 · 448."""


def compressed_tensors_int4(weight: Tensor, group: int) -> Parts:
    """INT4 as compressed-tensors quantizes it: scale amax / 7.5 and codes −8…7, all in the weight's own dtype."""
    dtype = weight.dtype
    scale = block_amax(weight, (1, group)).to(dtype) / torch.tensor(7.5, dtype=dtype, device=weight.device)
    scale = torch.where(scale == 0, torch.finfo(dtype).eps, scale)
    steps = weight.view(*weight.shape[:-1], -1, group) / scale.unsqueeze(-1)
    codes = steps.clamp(-8, 7).round().to(torch.int8).flatten(-2)
    shape = torch.tensor(weight.shape[-2:], dtype=torch.int64, device=weight.device)
    return {"codes": pack_int4(codes), "block_scale": scale, "shape": shape}


def transformer_engine_fast_error(weight: Tensor, amax: Tensor, adaptive: FourOverSix) -> Parts:
    """NVFP4 four-over-six under NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH=1."""
    return _in_scaled_domain(weight, nvfp4_encode(amax, float(adaptive.maximum)), adaptive.error)


def sglang_online(weight: Tensor, amax: Tensor) -> Parts:
    """NVFP4 as SGLang's `nvfp4_online` quantizes a BF16 checkpoint: four-over-six, MSE, 448, the fast error.

    The outer scale is amax / 2688, 1 where that is 0, and S its reciprocal; a block of zeros loses its signs.
    """
    outer = divided(amax, _NVFP4_MAX)
    outer = torch.where(outer == 0, 1.0, outer)
    parts = _in_scaled_domain(weight, divided(1.0, outer), "mse")
    empty = block_amax(weight, (1, 16)) == 0
    codes = parts["codes"].view(*empty.shape, 8).masked_fill(empty.unsqueeze(-1), 0)
    scale = parts["block_scale"].view(torch.uint8).masked_fill(empty, 0)
    stored = scale.view(torch.float8_e4m3fn)
    return {"codes": codes.flatten(-2), "block_scale": stored, "outer_scale": outer}


def _in_scaled_domain(weight: Tensor, encode: Tensor, error: str) -> Parts:
    amax = block_amax(weight, (1, 16))
    codes, scale = four_over_six.four_over_six(weight, amax, encode, error, four_over_six.fast(encode), high=1)
    stored = scale.view(torch.float8_e4m3fn)
    return {"codes": pack_e2m1(codes), "block_scale": stored, "outer_scale": divided(1.0, encode)}
