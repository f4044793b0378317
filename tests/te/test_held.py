"""The page's table of what TransformerEngine holds for training, against the shapes that its own classes compute."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from te.upstream_source import method_of

WEIGHT = (768, 2048)
KNOWN: dict[str, Any] = {
    "math": math,
    "round_up_to_nearest_multiple": lambda value, to: -(-value // to) * to,
    "MXFP8_BLOCK_SCALING_SIZE": 32,
    "NVFP4_BLOCK_SCALING_SIZE": 16,
}
CLASSES = {
    "`mxfp8`": ("MXFP8Quantizer", "tensor/mxfp8_tensor.py"),
    "`fp8_block`": ("Float8BlockQuantizer", "tensor/float8_blockwise_tensor.py"),
    "`nvfp4`": ("NVFP4Quantizer", "tensor/nvfp4_tensor.py"),
}
SQUARE = SimpleNamespace(block_scaling_dim=2, block_len=128)


def rows() -> dict[str, tuple[str, str]]:
    """The table: format → what is held rowwise and columnwise."""
    page = (Path(__file__).parents[2] / "docs" / "converting.md").read_text(encoding="utf-8")
    table = page.partition("### In TransformerEngine")[2].partition("\n\n- ")[0]
    cells = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines() if line.startswith("| `")]
    return {cell[0]: (cell[1], cell[2]) for cell in cells}


@pytest.mark.parametrize("name", CLASSES)
def test_the_scales_have_the_shapes_that_transformer_engine_computes(name: str) -> None:
    """For both copies of a weight of 768 × 2048, padding included."""
    kind, path = CLASSES[name]
    shape_of = method_of(kind, path, "get_scale_shape", KNOWN)
    for side, cell in enumerate(rows()[name]):
        high, wide = shape_of(SQUARE, WEIGHT, bool(side))
        assert f" {high} × {wide}" in cell.partition("scales")[2]


@pytest.mark.parametrize("name", CLASSES)
def test_the_codes_have_the_shapes_that_transformer_engine_computes(name: str) -> None:
    """The columnwise copy is transposed, but that of MXFP8; four-bit codes are two a byte."""
    kind, path = CLASSES[name]
    method = method_of(kind, path, "get_columnwise_shape", KNOWN)
    given = (WEIGHT,) if name == "`nvfp4`" else (SQUARE, WEIGHT)
    packed = 2 if name == "`nvfp4`" else 1
    for shape, cell in zip((WEIGHT, method(*given)), rows()[name], strict=True):
        assert cell.startswith(f"codes U8 {shape[0]} × {shape[1] // packed}<br>")
