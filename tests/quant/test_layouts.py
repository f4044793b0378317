"""The 128×4 layout against its formula, and back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from quant.upstream import flashinfer
from quant.weights import raw

from precc.quant.layouts import linear, padded, swizzled


@given(st.integers(1, 300), st.integers(1, 20), st.sampled_from([(), (3,), (2, 2)]))
def test_scales_come_back_from_their_tiles(rows: int, columns: int, lead: tuple[int, ...]) -> None:
    """Any size, stacked experts too, in the padded shape or flat."""
    scales = torch.randint(256, (*lead, rows, columns), dtype=torch.uint8)
    tiles = swizzled(scales)
    assert tiles.shape == (*lead, *padded(rows, columns))
    assert torch.equal(linear(tiles, rows, columns), scales)
    assert torch.equal(linear(tiles.flatten(-2), rows, columns), scales)


@pytest.mark.parametrize("rows, columns", [(128, 4), (129, 5), (200, 16), (1, 1)])
def test_each_scale_lies_where_the_formula_says(rows: int, columns: int) -> None:
    """And the padding is zero."""
    scales = torch.randint(1, 256, (rows, columns), dtype=torch.uint8)
    flat = swizzled(scales).flatten().tolist()
    wide = -(-columns // 4)
    for row in range(rows):
        for column in range(columns):
            tile = (row // 128) * wide + column // 4
            place = tile * 512 + (row % 32) * 16 + (row % 128 // 32) * 4 + column % 4
            assert flat[place] == scales[row, column]
            flat[place] = 0
    assert not any(flat)


def test_flashinfer_swizzles_alike() -> None:
    """Its own function, on rows and columns to pad; E4M3 keeps its dtype."""
    scales = torch.randint(127, (200, 18), dtype=torch.uint8)
    with flashinfer("layout") as upstream:
        wanted = upstream.swizzle_sf_128x4(scales, 200, 18 * 16, 16)
    found = swizzled(scales.view(torch.float8_e4m3fn))
    assert found.dtype == torch.float8_e4m3fn
    assert raw(found) == raw(wanted.contiguous())


def test_tiles_of_another_size_are_refused() -> None:
    """The message says what was given and what was asked for."""
    with pytest.raises(ValueError, match=r"\(128, 4\) does not hold 129 × 4 scales"):
        linear(torch.zeros(128, 4, dtype=torch.uint8), 129, 4)
