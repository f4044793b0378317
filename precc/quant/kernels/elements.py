"""Elements as `precc.quant.elements` has them, rounded by one addition.

To round a value, an anchor is added: a power of two so far above the value's own binade that the last bits of the sum
count steps of the element format there. The anchor's own last bits, and the binade shifted, are the exponent field of
the code. `part` compiles into the kernel that calls it, `kernel` is called from Python. A slice is indexed from zero in
an inner loop, where numba need not ask whether an index is negative: only then are stores vectors too.
"""

# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import numpy as np
from numba import njit

from precc.quant.kernels.lanes import bits, even, larger, number, odd, smaller

part = njit(inline="always", error_model="numpy")

i32, f32 = np.int32, np.float32
FP32_MAX = i32(0x7F7FFFFF)


def kernel(function):
    """This compiles a function on its first call, and keeps the machine code where a folder can be written."""
    try:
        return njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:  # numba found no such folder
        return njit(nogil=True, error_model="numpy")(function)


@part
def e4m3(value):
    """The E4M3 byte of a value up to ±448: three bits of mantissa, 2^-6 the least binade."""
    own = bits(value)
    binade = larger(i32(own & i32(0x7F800000)), i32(0x3C800000))
    total = bits(f32(number(i32(own & i32(0x7FFFFFFF))) + number(i32(binade + i32((20 << 23) + 0x38)))))
    return i32(i32(i32(total + i32(binade >> i32(20))) & i32(0x7F)) | i32(i32(own >> i32(24)) & i32(0x80)))


@part
def e2m1(value):
    """The E2M1 code of any value, ±6 at most: one bit of mantissa, 1 the least binade."""
    own = bits(value)
    magnitude = smaller(i32(own & i32(0x7FFFFFFF)), i32(0x40C00000))
    binade = larger(i32(magnitude & i32(0x7F800000)), i32(0x3F800000))
    total = bits(f32(number(magnitude) + number(i32(binade + i32((22 << 23) + 2)))))
    return i32(i32(i32(total + i32(binade >> i32(22))) & i32(7)) | i32(i32(own >> i32(28)) & i32(8)))


@part
def at_most_448(value):
    """A value of no sign, saturated for E4M3."""
    return number(smaller(bits(value), i32(0x43E00000)))


@part
def within_448(value):
    """A value of either sign, saturated for E4M3."""
    own = bits(value)
    return number(i32(smaller(i32(own & i32(0x7FFFFFFF)), i32(0x43E00000)) | i32(own & i32(-0x80000000))))


@part
def finite(value):
    """A positive value, FLT_MAX at most."""
    return number(smaller(bits(value), FP32_MAX))


@part
def of_e4m3(code):
    """The value of a positive E4M3 code: its bits in place, times 2^120."""
    return f32(number(i32(code << i32(20))) * f32(2.0**120))


@part
def of_e2m1(code):
    """The value of an E2M1 code, its sign left aside: its bits in place, times 2^126."""
    return f32(number(i32(i32(code & i32(7)) << i32(22))) * f32(2.0**126))


@part
def write_e4m3(source, start, each, codes):
    """This multiplies one row by a factor for each pair of elements, two codes an int16."""
    row = codes[start : start + each.size]
    for pair in range(each.size):
        low = e4m3(f32(even(source, start + pair) * each[pair]))
        high = e4m3(f32(odd(source, start + pair) * each[pair]))
        row[pair] = np.int16(i32(low | i32(high << i32(8))))


@part
def write_e2m1(source, start, each, codes):
    """This multiplies one row by a factor for each pair of elements, two codes a uint8."""
    row = codes[start : start + each.size]
    for pair in range(each.size):
        low = e2m1(f32(even(source, start + pair) * each[pair]))
        high = e2m1(f32(odd(source, start + pair) * each[pair]))
        row[pair] = np.uint8(i32(low | i32(high << i32(4))))
