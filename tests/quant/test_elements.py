"""Elements and packing against their definitions."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from quant.weights import every_bf16
from torch import Tensor

from precc.quant.elements import (
    from_e2m1,
    from_e4m3,
    from_e8m0,
    numbers_of,
    reciprocal_of_e8m0,
    to_e2m1,
    to_e4m3,
    to_e8m0,
)
from precc.quant.packing import pack_e2m1, pack_int4, unpack_e2m1, unpack_int4

BYTES = torch.arange(256, dtype=torch.int32).to(torch.uint8)
ANY_BITS = st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=200)


def e4m3_value(code: int) -> float:
    """OCP 8-bit specification: four bits of exponent, bias 7; three of mantissa."""
    exponent, mantissa = (code >> 3) & 15, code & 7
    magnitude = 2.0**-6 * mantissa / 8 if exponent == 0 else 2.0 ** (exponent - 7) * (1 + mantissa / 8)
    return float("nan") if code & 0x7F == 0x7F else (-magnitude if code & 0x80 else magnitude)


def e2m1_value(code: int) -> float:
    """OCP MX specification: two bits of exponent, bias 1; one of mantissa."""
    exponent, mantissa = (code >> 1) & 3, code & 1
    magnitude = mantissa / 2 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + mantissa / 2)
    return -magnitude if code & 8 else magnitude


def nearest(number: float, values: list[float]) -> int:
    """The index of the nearest value, the even index where two are as near."""
    return min(range(len(values)), key=lambda index: (abs(values[index] - number), index & 1))


def test_codes_have_the_values_of_the_specifications() -> None:
    """All 256 of E4M3, 16 of E2M1 and 256 of E8M0, and the sign of zero."""
    wanted = torch.tensor([e4m3_value(code) for code in range(256)])
    assert torch.equal(from_e4m3(BYTES).nan_to_num(999), wanted.nan_to_num(999))
    assert torch.equal(from_e2m1(BYTES[:16]), torch.tensor([e2m1_value(code) for code in range(16)]))
    assert from_e4m3(BYTES)[0x80].signbit()
    assert from_e2m1(BYTES[:16])[8].signbit()
    powers = torch.tensor([2.0 ** (code - 127) for code in range(255)], dtype=torch.float64)
    assert torch.equal(from_e8m0(BYTES)[:255].double(), powers)
    assert torch.equal(reciprocal_of_e8m0(BYTES)[:255].double(), 1 / powers)
    assert from_e8m0(BYTES)[255].isnan()
    assert reciprocal_of_e8m0(BYTES)[255].isnan()


def test_every_bf16_number_goes_to_the_nearest_element() -> None:
    """Ties to the even code, saturating, the sign kept; NaN as the hardware has it."""
    every = every_bf16().float()
    e4m3, e2m1 = ([value(code) for code in range(count)] for value, count in ((e4m3_value, 0x7F), (e2m1_value, 8)))
    for number, byte, code in zip(every.tolist(), to_e4m3(every).tolist(), to_e2m1(every).tolist(), strict=True):
        if number != number:
            assert (byte, code) == (0x7F, 7)
        elif abs(number) > 2.0**-12:
            assert byte & 0x7F == nearest(min(abs(number), 448.0), e4m3)
            assert code & 7 == nearest(min(abs(number), 6.0), e2m1)
    signs = torch.arange(1 << 16) >> 15
    finite = ~every.isnan()
    assert torch.equal((to_e4m3(every) >> 7)[finite].long(), signs[finite])
    assert torch.equal((to_e2m1(every) >> 3)[finite].long(), signs[finite])


@given(ANY_BITS)
def test_any_fp32_number_goes_to_the_element_that_torch_says(bits: list[int]) -> None:
    """torch's own cast of saturated numbers, for E4M3 and, rounded up, E8M0."""
    numbers = numbers_of(torch.tensor(bits, dtype=torch.int64).to(torch.int32))
    numbers = numbers[~numbers.isnan()]
    assert torch.equal(to_e4m3(numbers), numbers.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8))
    exponents = to_e8m0(numbers.abs()).long()
    for number, exponent in zip(numbers.abs().double().tolist(), exponents.tolist(), strict=True):
        assert number <= 2.0 ** (exponent - 127) or exponent == 254
        assert exponent == 0 or number > 2.0 ** (exponent - 128)


def test_numbers_that_are_not_finite_have_the_codes_of_the_hardware() -> None:
    """Inf saturates; NaN of either sign is 0x7F, +6 and 255."""
    numbers = torch.tensor([torch.inf, -torch.inf, torch.nan, -torch.nan])
    assert to_e4m3(numbers).tolist() == [0x7E, 0xFE, 0x7F, 0x7F]
    assert to_e2m1(numbers).tolist() == [7, 15, 7, 7]
    assert to_e8m0(numbers[[0, 2]]).tolist() == [254, 255]


@given(st.lists(st.integers(-8, 7), min_size=8, max_size=8))
def test_int4_words_hold_the_first_integer_lowest(integers: list[int]) -> None:
    """Each plus 8, and all come back."""
    word = pack_int4(torch.tensor(integers))
    assert int(word) & 0xFFFFFFFF == sum((integer + 8) << (4 * place) for place, integer in enumerate(integers))
    assert unpack_int4(word).tolist() == integers


def test_e2m1_bytes_hold_the_even_element_low() -> None:
    """All 256 pairs, and back."""
    pairs = torch.stack((BYTES & 15, BYTES >> 4), dim=-1).flatten()
    assert torch.equal(pack_e2m1(pairs), BYTES)
    assert torch.equal(unpack_e2m1(BYTES), pairs)


def test_scale_constants_are_those_of_the_kernels() -> None:
    """Reciprocals rounded to FP32 once."""
    found: list[Tensor] = [torch.tensor(1.0) * number for number in (1 / 448, 1 / 6, 1 / 7)]
    assert [hex(int(one.view(torch.int32))) for one in found] == ["0x3b124925", "0x3e2aaaab", "0x3e124925"]
