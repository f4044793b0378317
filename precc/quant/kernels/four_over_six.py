"""NVFP4 four-over-six: two candidates a block, their errors added in the order of the source."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import numpy as np

from precc.quant.kernels.elements import at_most_448, e2m1, e4m3, f32, finite, i32, kernel, of_e2m1, of_e4m3, part
from precc.quant.kernels.lanes import bits, even, larger, number, odd, splat8
from precc.quant.kernels.nvfp4 import block_peaks

_TARGETS = (f32(1.5), f32(1.0))
_FOUR, _SIX = 0, 1


@kernel
def four_over_six(source, encode, amax, full, squares, high, codes, scales):
    """encode and amax FP32 [rows]; full = 6 · E4M3 maximum; codes and scales as `nvfp4`.

    `high` rows share their blocks and the choice: their errors are added as a tree.
    """
    blocks, worst = scales.shape[1], i32(0)
    peaks = np.empty(blocks, np.int32)
    stored = np.empty((2, blocks), np.int32)
    each, values = np.empty((2, blocks * 8), np.float32), np.empty((2, blocks * 8), np.float32)
    trial = np.empty((2, high, blocks * 8), np.uint8)
    errors, distances = np.empty((2, high, blocks), np.float32), np.empty((2, blocks * 8), np.float32)
    for first in range(0, scales.shape[0], high):
        block_peaks(source, first, high, peaks)
        for block in range(blocks):
            worst = larger(worst, peaks[block])
        for choice in range(2):
            _scale(peaks, encode[first], _TARGETS[choice], stored[choice], each[choice], values[choice])
            for row in range(high):
                start = (first + row) * blocks * 8
                _try(source, start, each[choice], values[choice], amax[first], full, trial[choice, row], distances)
                _add(distances, squares, errors[choice, row])
            _fold(errors[choice])
        for row in range(high):
            _keep(errors[:, 0], stored, trial[:, row], codes, first + row, scales[first + row])
    return worst


@part
def _scale(peaks, encode, target, stored, each, values):
    """One candidate's scale bytes, and what its elements are multiplied by and worth, for each pair."""
    decode = f32(f32(1) / encode)
    for block in range(peaks.size):
        base = f32(f32(number(peaks[block]) / f32(6)) * encode)
        stored[block] = e4m3(at_most_448(f32(base * target)))
    for block in range(peaks.size):
        value = of_e4m3(stored[block])
        splat8(values, block * 8, value)
        splat8(each, block * 8, finite(f32(f32(1) / f32(value * decode))))


@part
def _try(source, start, each, values, amax, full, codes, distances):
    """The codes of one row and how far each element is from its own."""
    for pair in range(each.size):
        low, high = even(source, start + pair), odd(source, start + pair)
        lower, upper = e2m1(f32(low * each[pair])), e2m1(f32(high * each[pair]))
        distances[0, pair] = _distance(lower, low, values[pair], amax, full)
        distances[1, pair] = _distance(upper, high, values[pair], amax, full)
        codes[pair] = np.uint8(i32(lower | i32(upper << i32(4))))


@part
def _distance(code, element, scale, amax, full):
    """How far a code's magnitude is from the element's; both have one sign, or the code is zero."""
    value = f32(f32(f32(of_e2m1(code) * scale) * amax) / full)
    return number(i32(bits(f32(value - number(i32(bits(element) & i32(0x7FFFFFFF))))) & i32(0x7FFFFFFF)))


@part
def _add(distances, squares, errors):
    for block in range(errors.size):
        total = f32(0)
        for pair in range(block * 8, block * 8 + 8):
            low, high = distances[0, pair], distances[1, pair]
            if squares:
                low, high = f32(low * low), f32(high * high)
            total = f32(total + low)
            total = f32(total + high)
        errors[block] = total


@part
def _fold(errors):
    """Rows 8 apart are added, then 4, 2 and 1; the first row has the sum."""
    apart = errors.shape[0] // 2
    while apart:
        for row in range(apart):
            for block in range(errors.shape[1]):
                errors[row, block] = f32(errors[row, block] + errors[row + apart, block])
        apart //= 2


@part
def _keep(errors, stored, trial, codes, row, scales):
    for block in range(scales.size):
        choice = _FOUR if errors[_FOUR, block] < errors[_SIX, block] else _SIX
        scales[block] = stored[choice, block]
        for pair in range(block * 8, block * 8 + 8):
            codes[row * scales.size * 8 + pair] = trial[choice, pair]
