"""What is largest in a row, and in any stretch of one."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

from precc.quant.kernels.elements import i32, kernel, part
from precc.quant.kernels.lanes import bits, even, larger, odd, peak32


@part
def peak(source, start, count):
    """The largest magnitude of `count` elements, both even numbers, as the bits of an FP32."""
    top, whole = i32(0), count // 32
    for chunk in range(whole):
        top = larger(top, peak32(source, start + chunk * 32))
    for pair in range(start // 2 + whole * 16, (start + count) // 2):
        top = larger(top, i32(bits(even(source, pair)) & i32(0x7FFFFFFF)))
        top = larger(top, i32(bits(odd(source, pair)) & i32(0x7FFFFFFF)))
    return top


@kernel
def largest(source, columns, tops):
    """tops int32 [rows]: the bits of each row's largest magnitude."""
    worst = i32(0)
    for row in range(tops.size):
        tops[row] = peak(source, row * columns, columns)
        worst = larger(worst, tops[row])
    return worst
