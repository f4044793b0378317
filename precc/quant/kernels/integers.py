"""INT4 and INT8 in groups, symmetric."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import numpy as np

from precc.quant.kernels.elements import f32, i32, kernel, part
from precc.quant.kernels.lanes import bits, even, larger, number, odd, splat16
from precc.quant.kernels.peaks import peak

_LEAST = f32(1e-5)
_ROUNDS = f32(1.5 * 2.0**23)
"""What is added so that the last bits of the sum are the nearest integer, ties to even, in two's complement."""


@part
def _bf16(value):
    own = bits(value)
    return i32(i32(i32(own + i32(0x7FFF)) + i32(i32(own >> i32(16)) & i32(1))) >> i32(16))


@part
def _integer(value):
    return bits(f32(value + _ROUNDS))


@kernel
def integers(source, most, group, codes, scales):
    """codes uint8 (INT4, two a byte, plus 8) or int16 (INT8, two a store); scales int16, the bits of BF16."""
    blocks, worst = scales.shape[1], i32(0)
    each = np.empty(blocks * group // 2, np.float32)
    packs, step = most == 7, f32(1 / most)
    for row in range(scales.shape[0]):
        for block in range(blocks):
            top = peak(source, (row * blocks + block) * group, group)
            worst = larger(worst, top)
            scale = number(larger(bits(f32(number(top) * step)), bits(_LEAST)))
            scales[row, block] = np.int16(_bf16(scale))
            for half in range(group // 32):
                splat16(each, block * group // 2 + half * 16, scale)
        _write(source, row * each.size, each, packs, codes)
    return worst


@part
def _write(source, start, each, packs, codes):
    row = codes[start : start + each.size]
    for pair in range(each.size):
        low = _integer(f32(even(source, start + pair) / each[pair]))
        high = _integer(f32(odd(source, start + pair) / each[pair]))
        if packs:
            row[pair] = i32(i32(i32(low + i32(8)) & i32(0xF)) | i32(i32(i32(high + i32(8)) & i32(0xF)) << i32(4)))
        else:
            row[pair] = i32(i32(low & i32(0xFF)) | i32(i32(high & i32(0xFF)) << i32(8)))
