"""The engines' own quantizers against ours, byte for byte, on fresh random data."""

from __future__ import annotations

import random

import pytest
import torch
from quant.specs import SPECS
from quant.upstream import flashinfer, transformer_engine
from quant.weights import every_finite_bf16, normal, raw, shuffled
from torch import Tensor

from precc.quant import amax, dequantize, quantize
from precc.quant.layouts import swizzled
from precc.quant.packing import pack_int4, unpack_int4
from precc.quant.scales import nvfp4_encode

FRESH = random.randrange(1 << 30)


def weights() -> list[Tensor]:
    """New ones each run, and all finite BF16 numbers; the seed is in the assertions below."""
    return [
        normal(256, 512, seed=FRESH),
        normal(48, 1024, seed=FRESH, spread=6),
        normal(32, 256, seed=FRESH, dtype=torch.float16),
        normal(32, 256, seed=FRESH, dtype=torch.float32, spread=3),
        shuffled(every_finite_bf16(), seed=FRESH),
    ]


def test_mxfp8_is_flashinfer_s_own() -> None:
    """Its CPU reference, which is TransformerEngine's generic rule: codes, scales, and the swizzled layout."""
    for weight in weights():
        with flashinfer("mx_reference") as upstream:
            codes, tiles, scales = upstream.quantize_mx_reference(weight)
        parts = quantize(weight, SPECS["mxfp8"])
        assert raw(parts["codes"]) == raw(codes), FRESH
        assert raw(parts["block_scale"]) == raw(scales), FRESH
        assert raw(swizzled(parts["block_scale"])) == raw(tiles), FRESH


def test_nvfp4_per_tensor_is_flashinfer_s_own() -> None:
    """Its exact mode with the same S."""
    spec = SPECS["nvfp4_per_tensor"]
    for weight in weights():
        encode = nvfp4_encode(amax(weight, spec))
        with flashinfer("nvfp4_reference") as upstream:
            codes, tiles, _ = upstream.quantize_reference(weight, encode)
        parts = quantize(weight, spec)
        assert raw(parts["codes"]) == raw(codes), FRESH
        assert raw(swizzled(parts["block_scale"])) == raw(tiles), FRESH


def test_nvfp4_per_token_is_flashinfer_s_own() -> None:
    """And the scale of each row."""
    for weight in weights():
        inverse = torch.tensor(1.0) / torch.tensor(2688.0)
        with flashinfer("nvfp4_reference") as upstream:
            codes, tiles, rows = upstream.quantize_reference(weight, inverse, per_token=True)
        parts = quantize(weight, SPECS["nvfp4_per_token"])
        assert raw(parts["codes"]) == raw(codes), FRESH
        assert raw(swizzled(parts["block_scale"])) == raw(tiles), FRESH
        assert raw(parts["outer_scale"].flatten()) == raw(rows), FRESH


@pytest.mark.parametrize(
    "name, options",
    [
        ("nvfp4_per_tensor", {}),
        ("nvfp4_per_token", {"row_scaled_nvfp4": True}),
        ("nvfp4_2d", {"quant_tile_shape": (16, 16)}),
        ("nvfp4_4over6_mae_256", {"nvfp4_use_4over6": True, "nvfp4_e4m3_max": 256}),
        ("nvfp4_4over6_mse_448", {"nvfp4_use_4over6": True, "nvfp4_4over6_err_mode": "MSE"}),
        ("nvfp4_4over6_2d", {"nvfp4_use_4over6": True, "quant_tile_shape": (16, 16)}),
        (
            "nvfp4_4over6_per_token",
            {
                "nvfp4_use_4over6": True,
                "row_scaled_nvfp4": True,
                "nvfp4_e4m3_max": 256,
                "nvfp4_4over6_err_mode": "MSE",
            },
        ),
    ],
)
def test_nvfp4_is_transformer_engine_s_own(name: str, options: dict[str, object]) -> None:
    """Its Python reference, on numbers without a negative zero, whose sign that loses."""
    with transformer_engine() as upstream:
        quantizer = upstream.NVFP4QuantizerRef(dtype=None, columnwise=False, **options)
    for weight in (normal(64, 512, seed=FRESH), normal(48, 256, seed=FRESH, spread=4)):
        codes, scales, *_ = quantizer._quantize(weight)
        parts = quantize(weight, SPECS[name])
        assert raw(parts["block_scale"]) == raw(scales), FRESH
        assert _without_zero_signs(parts["codes"]) == _without_zero_signs(codes.view(torch.uint8)), FRESH


@pytest.mark.slow  # compressed-tensors takes its time to import
@pytest.mark.parametrize("group", [32, 128])
def test_int4_packs_as_compressed_tensors(group: int) -> None:
    """What it packs, and what it unpacks and dequantizes of ours."""
    helpers = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    weight = normal(64, 512, seed=FRESH)
    spec = SPECS[f"int4_g{group}"]
    parts = quantize(weight, spec)
    codes = unpack_int4(parts["codes"])
    assert raw(helpers.pack_to_int32(codes, 4)) == raw(parts["codes"]), FRESH
    opened = helpers.unpack_from_int32(parts["codes"], 4, torch.Size(parts["shape"].tolist()))
    scale = parts["block_scale"].repeat_interleave(group, -1)
    assert raw(opened.to(torch.bfloat16) * scale) == raw(dequantize(parts, spec, dtype=torch.bfloat16)), FRESH
    assert raw(pack_int4(codes)) == raw(parts["codes"])


def _without_zero_signs(packed: Tensor) -> bytes:
    """E2M1 bytes with each −0 as 0."""
    low, high = packed & 0xF, packed >> 4
    return raw(torch.where(low == 8, 0, low) | (torch.where(high == 8, 0, high) << 4))
