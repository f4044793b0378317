"""What a quantizer refuses, and what the parts look like that it gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from quant.specs import SPECS
from quant.weights import normal

from precc.formats import FORMATS, Decision, Quantization, stored_parts
from precc.quant import NotFinite, amax, fake_quantize, fast, quantize

DTYPES = {
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
}
STORED = [name for name, spec in SPECS.items() if spec.scope in (None, "per_tensor", "per_channel")]


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("shape, axis", [((64, 256), -1), ((3, 128, 256), 2), ((3, 256, 128), 1)])
def test_parts_are_those_that_the_formats_table_lists(name: str, shape: tuple[int, ...], axis: int) -> None:
    """Names, dtypes, shapes, contiguous; INT4 codes are words of eight."""
    found = quantize(normal(*shape), SPECS[name], axis=axis)
    for listed in stored_parts(Decision(SPECS[name]), shape, axis):
        part = found.pop(listed.part)
        wanted, sizes = DTYPES[listed.dtype], list(listed.shape)
        if name.startswith("int4") and listed.part == "codes":
            wanted, sizes[-1] = torch.int32, sizes[-1] // 4
        assert (part.dtype, list(part.shape)) == (wanted, sizes)
        assert part.is_contiguous()
    assert not found


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("bad", [torch.nan, -torch.inf])
@pytest.mark.parametrize("installed", [True, False])
def test_numbers_that_are_not_finite_are_counted_and_found(
    name: str, bad: float, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the position in the weight as it was given, with and without numba, with and without an amax."""
    if installed:
        pytest.importorskip("numba")
    monkeypatch.setattr(fast, "is_installed", lambda: installed)
    weight = normal(2, 128, 256)
    weight[1, 17, 130] = weight[1, 90, 3] = bad
    for options in ({}, {"amax": torch.ones(())}):
        with pytest.raises(NotFinite, match=r"2 values not finite, the first .* at \[1, 17, 130\]") as caught:
            quantize(weight, SPECS[name], axis=1, **options)  # type: ignore[arg-type]
        assert (caught.value.count, caught.value.position) == (2, (1, 17, 130))
    with pytest.raises(NotFinite, match="2 values"):
        amax(weight, SPECS[name], axis=1)


@pytest.mark.parametrize(
    "name, shape, said",
    [
        ("mxfp8", (4, 48), "48 columns do not divide into mxfp8 blocks of 32"),
        ("nvfp4_per_tensor", (4, 24), "24 columns do not divide into nvfp4 blocks of 16"),
        ("nvfp4_2d", (24, 32), "24 rows do not divide into nvfp4 blocks of 16"),
        ("int4_g128", (4, 192), "192 columns do not divide into int4 blocks of 128"),
        ("mxfp8", (32,), r"shape \[32\]"),
        ("fp8_block_pow2", (0, 128), r"shape \[0, 128\]"),
    ],
)
def test_a_shape_that_the_blocks_do_not_divide_is_refused(name: str, shape: tuple[int, ...], said: str) -> None:
    """With both sizes; blocks of 128×128 may be partial."""
    with pytest.raises(ValueError, match=said):
        quantize(torch.zeros(shape, dtype=torch.bfloat16), SPECS[name])


def test_a_dtype_and_a_format_without_a_quantizer_are_refused() -> None:
    """Each says what there is."""
    with pytest.raises(ValueError, match=r"torch\.float64 cannot be quantized: BF16, FP16 or FP32"):
        quantize(torch.zeros(32, 32, dtype=torch.float64), SPECS["mxfp8"])
    with pytest.raises(ValueError, match="mxfp4 has no quantizer: there are mxfp8, nvfp4"):
        quantize(torch.zeros(32, 32), Quantization("mxfp4", (1, 32), "e8m0"))
    with pytest.raises(ValueError, match="mxfp8 has blocks of 1×32, and this decision none"):
        quantize(torch.zeros(32, 32), Quantization("mxfp8"))


@pytest.mark.parametrize("function", [quantize, amax, fake_quantize])
def test_what_is_no_decision_is_refused_with_how_to_get_one(function: Any) -> None:
    """The name of a format is not enough: a decision has a block, a scale, a scope."""
    with pytest.raises(TypeError, match=r"'nvfp4' is a str, no Quantization: .*load_contract\(path\)\[name\]"):
        function(torch.zeros(32, 32), "nvfp4")


@pytest.mark.parametrize("function", [quantize, amax])
def test_what_is_no_weight_is_refused(function: Any) -> None:
    """A list, or a tensor without values."""
    with pytest.raises(TypeError, match=r"a weight is a torch\.Tensor, not a list"):
        function([[0.0] * 32], SPECS["mxfp8"])
    with pytest.raises(ValueError, match="on the meta device holds no values"):
        function(torch.zeros(32, 32, device="meta"), SPECS["mxfp8"])


AMAX: dict[str, tuple[str, Any, type[Exception], str]] = {
    "a number": ("nvfp4_per_tensor", 3.0, TypeError, "an amax is a torch.Tensor, not a float"),
    "of another shape": ("nvfp4_per_tensor", torch.ones(3), ValueError, r"float32 \[3\] does not fit: .* of \[2\]"),
    "of too many axes": ("nvfp4_per_tensor", torch.ones(1, 2), ValueError, r"\[1, 2\] does not fit"),
    "of rows that are not there": ("fp8_token", torch.ones(2, 7, 1), ValueError, r"outer scales of \[2, 128, 1\]"),
    "of integers": ("fp8_tensor", torch.ones(2, dtype=torch.int32), ValueError, r"int32 \[2\] does not fit"),
    "below zero": ("nvfp4_per_tensor", torch.tensor([1.0, -1.0]), ValueError, "holds values below zero, NaN or Inf"),
    "NaN": ("nvfp4_2d", torch.tensor(torch.nan), ValueError, "holds values below zero, NaN or Inf"),
    "infinite": ("fp8_tensor", torch.tensor(torch.inf), ValueError, "this one holds values below zero, NaN or Inf"),
}


@pytest.mark.parametrize("name", AMAX)
def test_an_amax_that_no_outer_scale_can_be_made_of_is_refused(name: str) -> None:
    """With the shape that it should have."""
    spec, given, kind, said = AMAX[name]
    with pytest.raises(kind, match=said):
        quantize(normal(2, 128, 256), SPECS[spec], amax=given)


def test_an_amax_of_one_value_serves_every_matrix() -> None:
    """As it is broadcast; zero is that of a weight of zeros."""
    weight = normal(2, 128, 256)
    one = quantize(weight, SPECS["nvfp4_per_tensor"], amax=torch.tensor(2.0))
    each = quantize(weight, SPECS["nvfp4_per_tensor"], amax=torch.tensor([2.0, 2.0]))
    assert all(torch.equal(one[part], each[part]) for part in one)
    assert quantize(torch.zeros(2, 128, 256), SPECS["nvfp4_per_tensor"], amax=torch.zeros(()))


def test_a_weight_of_zeros_has_scales_that_dequantize_it() -> None:
    """As documented: E8M0 0, FP8 and NVFP4 outer scale 1, INT4 scale 1e-5 in BF16; −0 keeps its sign but in INT4."""
    zeros = -torch.zeros(128, 128, dtype=torch.bfloat16)
    found = {name: quantize(zeros, SPECS[name]) for name in SPECS}
    assert not found["mxfp8"]["block_scale"].any()
    assert found["fp8_block_pow2"]["block_scale"].tolist() == [[1.0]]
    assert float(found["fp8_tensor"]["outer_scale"]) == float(found["nvfp4_per_tensor"]["outer_scale"]) == 1.0
    assert (found["int4_g32"]["block_scale"] == torch.tensor(1e-5, dtype=torch.bfloat16)).all()
    assert (found["int4_g32"]["codes"] == 0x88888888 - (1 << 32)).all()
    for name, signed in (("mxfp8", 0x80), ("fp8_tensor", 0x80), ("fp8_token", 0x80), ("nvfp4_per_tensor", 0x88)):
        assert (found[name]["codes"].view(torch.uint8) == signed).all()


def test_every_format_that_a_checkpoint_is_written_in_has_a_quantizer() -> None:
    """MXFP4 weights are read, never written."""
    covered = {spec.format for spec in SPECS.values()}
    assert covered == {name for name, form in FORMATS.items() if form.is_quantized} - {"mxfp4"}
