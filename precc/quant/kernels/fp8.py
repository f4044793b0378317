"""MXFP8, FP8 in blocks, and FP8 with one factor a row."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import numpy as np

from precc.quant.kernels.elements import e4m3, f32, i32, kernel, part, within_448, write_e4m3
from precc.quant.kernels.lanes import bits, even, larger, number, odd, peak32, splat16
from precc.quant.kernels.peaks import peak

_448TH = f32(1 / 448)


@kernel
def mxfp8(source, codes, scales):
    """codes int16 [rows · columns / 2]; scales uint8 [rows, columns / 32]."""
    blocks, worst = scales.shape[1], i32(0)
    peaks, factors = np.empty(blocks, np.int32), np.empty(blocks, np.float32)
    each = np.empty(blocks * 16, np.float32)
    for row in range(scales.shape[0]):
        for block in range(blocks):
            peaks[block] = peak32(source, (row * blocks + block) * 32)
        for block in range(blocks):
            worst = larger(worst, peaks[block])
            wanted = bits(f32(number(peaks[block]) * _448TH))
            exponent = i32(i32(wanted + i32(0x7FFFFF)) >> i32(23)) if wanted > i32(0x400000) else i32(0)
            scales[row, block] = exponent
            factors[block] = number(i32(i32(i32(254) - exponent) << i32(23)))
        for block in range(blocks):
            splat16(each, block * 16, factors[block])
        write_e4m3(source, row * each.size, each, codes)
    return worst


@part
def _fp8_encode(top, most, power_of_two):
    """S = 448 / amax, as `scales.fp8_encode`."""
    if top == i32(0):
        return f32(1)
    encode = f32(f32(448) / number(top))
    if bits(encode) == i32(0x7F800000):
        encode = most
    return number(i32(bits(encode) & i32(-0x800000))) if power_of_two else encode


@kernel
def fp8_blocks(source, columns, block, most, power_of_two, codes, scales):
    """codes int16 [rows · columns / 2]; scales FP32, one a block; the last row and column of blocks may be partial."""
    high, wide = block
    rows, worst = codes.size * 2 // columns, i32(0)
    each = np.empty(columns // 2, np.float32)
    for across in range(scales.shape[0]):
        first, last = across * high, min((across + 1) * high, rows)
        for along in range(scales.shape[1]):
            start, stop = along * wide, min((along + 1) * wide, columns)
            top = i32(0)
            for row in range(first, last):
                top = larger(top, peak(source, row * columns + start, stop - start))
            worst = larger(worst, top)
            encode = _fp8_encode(top, most, power_of_two)
            scales[across, along] = f32(f32(1) / encode)
            each[start // 2 : stop // 2] = encode
        for row in range(first, last):
            write_e4m3(source, row * each.size, each, codes)
    return worst


@kernel
def fp8_rows(source, factors, divides, codes):
    """factors FP32 [rows], multiplied with or divided by; codes int16 [rows · columns / 2]."""
    pairs, worst = codes.size // factors.size, i32(0)
    for row in range(factors.size):
        factor, start = factors[row], row * pairs
        stored = codes[start : start + pairs]
        worst = larger(worst, peak(source, 2 * start, 2 * pairs))
        for pair in range(pairs):
            low, high = even(source, start + pair), odd(source, start + pair)
            if divides:
                low, high = f32(low / factor), f32(high / factor)
            else:
                low, high = f32(low * factor), f32(high * factor)
            stored[pair] = np.int16(i32(e4m3(within_448(low)) | i32(e4m3(within_448(high)) << i32(8))))
    return worst
