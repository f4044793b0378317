"""Stored parts as numbers, in float64 and by the formats' own tables: nothing here is the code that wrote them.

An element is right if no other value of its format lies nearer at the stored scale, a scale if it is that of its
block's largest magnitude, as far as its own format can say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log2

import numpy
import torch

from precc.formats import Quantization

Array = numpy.ndarray

_CODES = numpy.arange(256)
_EXPONENT, _MANTISSA = (_CODES >> 3) & 15, _CODES & 7
_MAGNITUDE = numpy.where(_EXPONENT > 0, 2.0 ** (_EXPONENT - 7) * (1 + _MANTISSA / 8), 2.0**-6 * _MANTISSA / 8)
E4M3 = numpy.where(_CODES & 127 == 127, numpy.nan, numpy.where(_CODES & 128, -_MAGNITUDE, _MAGNITUDE))
E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
INT4 = numpy.arange(16.0) - 8

LEVELS = {"mxfp8": E4M3, "fp8_block": E4M3, "nvfp4": E2M1, "int4": numpy.arange(8.0)}
TOP = {"mxfp8": 448, "fp8_block": 448, "nvfp4": 6, "int4": 7}

FP32, BF16, THREE_BITS = 2.0**-21, 2.0**-8, 2.0**-4
"""How far rounding moves a quotient: a few FP32 operations, a BF16 scale, an E4M3 scale."""


@dataclass(frozen=True)
class Decoded:
    """A weight [rows, columns]: the value of each code, and the scale that it is multiplied by, rounded to FP32."""

    spec: Quantization
    codes: Array
    scale: Array

    @property
    def numbers(self) -> Array:
        """The weight, rounded once more to FP32."""
        return (self.codes * self.scale).astype(numpy.float32)

    def faults(self, weight: Array) -> Iterator[str]:
        """What is not as the format's definition makes it of a weight, in words."""
        steps = weight / self.scale
        levels = numpy.unique(LEVELS[self.spec.format][LEVELS[self.spec.format] >= 0])
        nearest = levels[numpy.searchsorted((levels[1:] + levels[:-1]) / 2, abs(steps))]
        slack = (2 * BF16 if self.spec.format == "int4" else FP32) * abs(steps)
        farther = abs(steps - self.codes) - abs(abs(steps) - nearest) > slack
        if farther.any():
            yield f"{int(farther.sum())} elements have a nearer value"
        assert self.spec.block is not None
        ratio = self.scale * TOP[self.spec.format] / _largest(abs(weight), self.spec.block)
        low, high = _bounds(self.spec)
        if ratio.min() < low or ratio.max() > high:
            yield f"scales are {ratio.min()} to {ratio.max()} of what the largest magnitude wants"


def decoded(spec: Quantization, parts: Mapping[str, torch.Tensor]) -> Decoded:
    """The stored parts of a matrix."""
    raw = parts["codes"].contiguous().view(torch.uint8).numpy()
    nibbles = numpy.stack((raw & 15, raw >> 4), -1).reshape(len(raw), -1)
    codes = {"nvfp4": E2M1, "int4": INT4}[spec.format][nibbles] if spec.format in ("nvfp4", "int4") else E4M3[raw]
    scale = parts["block_scale"]
    if spec.format == "mxfp8":
        values = 2.0 ** (scale.numpy().astype(float) - 127)
    elif spec.format == "nvfp4":
        values = E4M3[scale.view(torch.uint8).numpy()] * float(parts["outer_scale"])
    else:
        values = scale.double().numpy()
    high, wide = (1, 16) if spec.format == "nvfp4" else spec.block or (1, 1)
    spread = values.astype(numpy.float32).astype(float).repeat(high, 0).repeat(wide, 1)
    return Decoded(spec, codes, spread[: codes.shape[0], : codes.shape[1]])


def outer_fault(outer: torch.Tensor, spec: Quantization, largest: float) -> str:
    """What is wrong with an NVFP4 outer scale for the largest magnitude of its group; empty if nothing is."""
    most = 6 * (spec.four_over_six.maximum if spec.four_over_six else 448)
    off = abs(log2(float(outer) * most / largest))
    return "" if off < FP32 else f"the outer scale is {float(outer)}, the largest magnitude {largest}"


def _bounds(spec: Quantization) -> tuple[float, float]:
    if spec.format == "int4":
        return 1 - BF16, 1 + BF16
    if spec.format == "nvfp4":
        return 1 - THREE_BITS, (1.5 if spec.four_over_six else 1) * (1 + THREE_BITS)
    return 1 - FP32, 1 + FP32 if spec.scale == "fp32" else 2 * (1 + FP32)


def _largest(magnitudes: Array, block: tuple[int, int]) -> Array:
    """The largest magnitude of each element's block, blocks at the edges partial."""
    rows, columns = magnitudes.shape
    high, wide = block
    padded = numpy.pad(magnitudes, ((0, -rows % high), (0, -columns % wide)))
    tiles = padded.reshape(len(padded) // high, high, -1, wide).max((1, 3))
    return tiles.repeat(high, 0).repeat(wide, 1)[:rows, :columns]
