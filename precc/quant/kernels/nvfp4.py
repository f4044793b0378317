"""NVFP4 in blocks of 1×16 or 16×16."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import numpy as np

from precc.quant.kernels.elements import at_most_448, e4m3, f32, finite, i32, kernel, of_e4m3, part, write_e2m1
from precc.quant.kernels.lanes import larger, number, peak16, splat8

_SIXTH = f32(1 / 6)


@part
def block_peaks(source, first, high, peaks):
    """The largest magnitude of each block of `high` rows × 16 columns, from row `first` on."""
    peaks[:] = i32(0)
    for row in range(first, first + high):
        for block in range(peaks.size):
            peaks[block] = larger(peaks[block], peak16(source, (row * peaks.size + block) * 16))


@kernel
def nvfp4(source, encode, high, codes, scales):
    """encode FP32 [rows]: S; codes uint8 [rows · columns / 2]; scales uint8 [rows, columns / 16]."""
    blocks, worst = scales.shape[1], i32(0)
    peaks, factors = np.empty(blocks, np.int32), np.empty(blocks, np.float32)
    each = np.empty(blocks * 8, np.float32)
    for first in range(0, scales.shape[0], high):
        block_peaks(source, first, high, peaks)
        multiplier, decode = f32(encode[first] * _SIXTH), f32(f32(1) / encode[first])
        for block in range(blocks):
            worst = larger(worst, peaks[block])
            scale = e4m3(at_most_448(f32(number(peaks[block]) * multiplier)))
            scales[first, block] = scale
            factors[block] = finite(f32(f32(1) / f32(of_e4m3(scale) * decode)))
        for block in range(blocks):
            splat8(each, block * 8, factors[block])
        for row in range(first + 1, first + high):
            scales[row, :] = scales[first, :]
        for row in range(first, first + high):
            write_e2m1(source, row * each.size, each, codes)
    return worst
