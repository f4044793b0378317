"""From what is largest to what is multiplied by: encode scales, as TransformerEngine computes them.

Everything is FP32 and every division correctly rounded: between tensors of one device, since torch on CUDA turns a
division by a number into a multiplication, and one of a number into a reciprocal and a multiplication.
"""

from __future__ import annotations

import torch
from torch import Tensor

from precc.quant.elements import E4M3_MAX, FP32_MAX, bits_of, numbers_of

_EXPONENT = -0x0080_0000
"""The sign and exponent bits of FP32, as an int32."""
_LEAST = 1e-12
"""The least amax of an FP8 channel, as Miles' converter has it."""


def divided(numerator: Tensor | float, denominator: Tensor | float) -> Tensor:
    """The correctly rounded quotient, on any device; at least one of the two is a tensor."""
    device = (numerator if isinstance(numerator, Tensor) else denominator).device  # type: ignore[union-attr]
    return torch.div(_there(numerator, device), _there(denominator, device))


def nvfp4_encode(amax: Tensor, element_max: float = E4M3_MAX) -> Tensor:
    """S = min(6 · element_max / amax, FLT_MAX), and 1 where amax is 0 or Inf; what is stored is 1 / S."""
    encode = divided(6.0 * element_max, amax).clamp_max(FP32_MAX)
    return torch.where((amax == 0) | (encode == 0), 1.0, encode)


def fp8_encode(amax: Tensor, most: float, power_of_two: bool = False) -> Tensor:
    """S = 448 / amax, 1 where amax is 0 or Inf; `most` where that overflows; a power of two is rounded down."""
    encode = divided(E4M3_MAX, amax)
    encode = torch.where(encode.isinf(), most, encode)
    if power_of_two:
        encode = numbers_of(bits_of(encode) & _EXPONENT)
    return torch.where((amax == 0) | amax.isinf(), 1.0, encode)


def channel_scale(amax: Tensor, dtype: torch.dtype) -> Tensor:
    """amax / 448 with a floor of 1e-12 in the weight's own dtype (FP32's where that has none), as Miles converts."""
    least = torch.tensor(_LEAST, dtype=dtype).item() or _LEAST
    return divided(amax.clamp_min(least), E4M3_MAX)


def token_factor(scale: Tensor) -> Tensor:
    """1 / scale, and 0 for a row of zeros, as SGLang's kernel for activations; FLT_MAX where that overflows."""
    return torch.where(scale == 0, 0.0, divided(1.0, scale).clamp_max(FP32_MAX))


def _there(value: Tensor | float, device: torch.device) -> Tensor:
    return value if isinstance(value, Tensor) else torch.full((), value, device=device)
