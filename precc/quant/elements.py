"""How one FP32 number becomes an element, and back: E4M3, E8M0, E2M1, in integer arithmetic on its bits.

No cast of torch rounds here, and nothing divides, so that a CPU and a GPU give the same bytes and no release of torch
changes them. All round to nearest, ties to even, unless said; formats are those of the OCP 8-bit and Microscaling
specifications. Elements are uint8, one a byte; see `packing` for two a byte.
"""

from __future__ import annotations

import torch
from torch import Tensor

E4M3_MAX = 448.0
E2M1_MAX = 6.0
FP32_MAX = torch.finfo(torch.float32).max

_MAGNITUDE, _INFINITY = 0x7FFF_FFFF, 0x7F80_0000
_E4M3_NAN, _E4M3_TOP = 0x7F, 0x7E
_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def to_e4m3(numbers: Tensor) -> Tensor:
    """E4M3 bytes, saturating: beyond 448 and Inf become ±448 (0x7E), NaN becomes 0x7F, −0 stays 0x80."""
    bits = bits_of(numbers)
    magnitude = bits & _MAGNITUDE
    normal = _rounded(magnitude, dropped=20) - ((127 - 7) << 3)
    code = torch.where(magnitude < 0x3C80_0000, _steps(magnitude, of=2.0**-9), normal).clamp_max(_E4M3_TOP)
    code = code | ((bits >> 24) & 0x80)
    return torch.where(magnitude > _INFINITY, _E4M3_NAN, code).to(torch.uint8)


def from_e4m3(codes: Tensor) -> Tensor:
    """The FP32 value of E4M3 bytes (uint8 or float8_e4m3fn), exact; 0x7F and 0xFF are NaN."""
    return codes.view(torch.float8_e4m3fn).to(torch.float32)


def to_e8m0(numbers: Tensor) -> Tensor:
    """The biased exponent of the least power of two that is no smaller, at most 254; NaN becomes 255."""
    magnitude = bits_of(numbers) & _MAGNITUDE
    exponent = ((magnitude + 0x7F_FFFF) >> 23).clamp_max(254)
    exponent = torch.where(magnitude <= 0x0040_0000, 0, exponent)
    return torch.where(magnitude > _INFINITY, 255, exponent).to(torch.uint8)


def from_e8m0(scales: Tensor) -> Tensor:
    """The power of two that an E8M0 byte stands for, as FP32: 2^-127 (a subnormal) for 0, NaN for 255.

    The byte is a uint8 or a float8_e8m0fnu.
    """
    return _power_of_two(scales.view(torch.uint8).to(torch.int32), 255)


def reciprocal_of_e8m0(scales: Tensor) -> Tensor:
    """One over that power of two, exact: 2^127 for 0, 2^-127 for 254, NaN for 255."""
    exponent = scales.to(torch.int32)
    return _power_of_two(torch.where(exponent == 255, 255, 254 - exponent), 255)


def to_e2m1(numbers: Tensor) -> Tensor:
    """E2M1 codes (0–15), saturating at ±6; NaN becomes +6 (0x7), −0 stays 0x8."""
    bits = bits_of(numbers)
    magnitude = bits & _MAGNITUDE
    normal = _rounded(magnitude, dropped=22) - ((127 - 1) << 1)
    code = torch.where(magnitude < 0x3F80_0000, _steps(magnitude, of=0.5), normal).clamp_max(7)
    code = code | ((bits >> 28) & 0x8)
    return torch.where(magnitude > _INFINITY, 7, code).to(torch.uint8)


def from_e2m1(codes: Tensor) -> Tensor:
    """The FP32 value of E2M1 codes, one a byte."""
    values = torch.tensor((*_E2M1_VALUES, *(-value for value in _E2M1_VALUES)), device=codes.device)
    return values[codes.to(torch.int64)]


def bits_of(numbers: Tensor) -> Tensor:
    """FP32 as the int32 with the same bits."""
    return numbers.contiguous().view(torch.int32)


def numbers_of(bits: Tensor) -> Tensor:
    """Those bits as FP32 again."""
    return bits.to(torch.int32).view(torch.float32)


def _rounded(magnitude: Tensor, dropped: int) -> Tensor:
    """The magnitude's bits without the last `dropped`, to nearest even; a carry goes into the exponent."""
    odd = (magnitude >> dropped) & 1
    return (magnitude + ((1 << (dropped - 1)) - 1) + odd) >> dropped


def _steps(magnitude: Tensor, of: float) -> Tensor:
    """How many steps a magnitude below one binade is: adding 2^23 steps leaves them in the last bits, rounded."""
    anchor = torch.full((), of * 2.0**23, device=magnitude.device)
    return bits_of(numbers_of(magnitude) + anchor) - bits_of(anchor)


def _power_of_two(exponent: Tensor, nan: int) -> Tensor:
    bits = torch.where(exponent == 0, 0x0040_0000, exponent << 23)
    return numbers_of(torch.where(exponent == nan, 0x7FC0_0000, bits))
