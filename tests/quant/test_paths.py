"""The compiled kernels against the specification, byte for byte: every number, every shape, random blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quant.specs import SPECS
from quant.weights import by_reference, differences, every_bf16, every_finite_bf16, normal, shuffled

from precc.formats import Quantization
from precc.quant import amax, bands, fast, quantize
from precc.quant.bands import in_bands

PATTERNS = st.one_of(
    st.integers(0, 0xFFFF),
    st.sampled_from([0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x7F7F, 0xFF7F, 0x43E0, 0x3E00, 0x40C0]),
    st.integers(0x3C00, 0x3E00),
)

MANY_BANDS = (400, 128)
"""Rows that the tallest block does not divide, where blocks may be partial."""


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """These tests are about the compiled path."""
    pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def small_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small weight makes many bands."""
    monkeypatch.setattr(fast, "LEAST_OF_A_BAND", 1 << 12)
    monkeypatch.setattr(bands, "ELEMENTS_A_BAND", 1 << 13)


@pytest.mark.parametrize("name", SPECS)
def test_every_bf16_number_is_stored_as_the_specification_says(name: str) -> None:
    """All finite ones, in order and shuffled, so that each is beside larger and smaller ones."""
    for weight in (every_finite_bf16(), shuffled(every_finite_bf16())):
        assert differences(quantize(weight, SPECS[name]), by_reference(weight, SPECS[name])) == []


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4_per_token", "fp8_token", "int4_g32"])
def test_every_bf16_number_alone_in_its_row_is_stored_as_the_specification_says(name: str) -> None:
    """Each number as the largest of its block, with a half, a quarter, … of it beside it."""
    every = every_bf16()
    finite = every[every.isfinite()][:, None].float()
    weight = (finite * torch.exp2(-torch.arange(128.0))).to(torch.bfloat16)[::5].contiguous()
    assert differences(quantize(weight, SPECS[name]), by_reference(weight, SPECS[name])) == []


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_dtype_and_shape_is_stored_as_the_specification_says(name: str, dtype: torch.dtype) -> None:
    """One matrix, stacked experts, and many bands of rows over several threads."""
    for shape in ((3, 48, 128), (2, 2, 16, 256), MANY_BANDS):
        weight = normal(*shape, dtype=dtype, spread=2)
        assert differences(quantize(weight, SPECS[name]), by_reference(weight, SPECS[name])) == []


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("installed", [True, False])
def test_another_contraction_axis_stores_the_bytes_of_the_transposed_weight(
    name: str, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[experts, columns, rows], as fused experts are kept, with the contraction in the middle; and a strided view."""
    weight = normal(2, 256, 96)
    wanted = [quantize(view.transpose(1, 2).contiguous(), SPECS[name]) for view in (weight, weight[..., ::2])]
    monkeypatch.setattr(fast, "is_installed", lambda: installed)
    assert differences(quantize(weight, SPECS[name], axis=1), wanted[0]) == []
    assert differences(quantize(weight[..., ::2], SPECS[name], axis=1), wanted[1]) == []


@pytest.mark.parametrize("name", ["fp8_block_fp32", "fp8_block_pow2", "fp8_tiles_pow2"])
def test_blocks_at_the_edges_may_be_partial(name: str) -> None:
    """Rows and columns that 128 does not divide, odd columns included (which the kernels leave to the reference)."""
    for shape in ((576, 896), (200, 576), (2, 130, 258), (5, 6), (129, 131)):
        weight = normal(*shape)
        assert differences(quantize(weight, SPECS[name]), by_reference(weight, SPECS[name])) == []


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_blocks_are_stored_as_the_specification_says(name: str, data: st.DataObject) -> None:
    """Any bits at all that are finite, 16 × 128 of them made of a few drawn ones."""
    drawn = data.draw(st.lists(PATTERNS, min_size=1, max_size=64))
    seed = data.draw(st.integers(0, 1 << 30))
    bits = torch.tensor(drawn, dtype=torch.int32)[_choice(len(drawn), seed)].to(torch.int16)
    weight = bits.view(torch.bfloat16)
    weight = torch.where(weight.isfinite(), weight, torch.zeros_like(weight))
    assert differences(quantize(weight, SPECS[name]), by_reference(weight, SPECS[name])) == []


@pytest.mark.parametrize("name", SPECS)
def test_without_numba_the_bytes_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference over bands of rows takes over."""
    weight = normal(*MANY_BANDS)
    compiled = quantize(weight, SPECS[name])
    monkeypatch.setattr(fast, "is_installed", lambda: False)
    assert differences(quantize(weight, SPECS[name]), compiled) == []


@pytest.mark.parametrize("name", SPECS)
def test_threads_do_not_change_a_byte(name: str) -> None:
    """One thread or three."""
    weight, threads = normal(*MANY_BANDS, spread=3), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = quantize(weight, SPECS[name])
        torch.set_num_threads(3)
        assert differences(quantize(weight, SPECS[name]), alone) == []
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.scope == "per_tensor"])
def test_a_shared_outer_scale_is_that_of_the_tensors_together(name: str) -> None:
    """Gate and up quantized apart with the larger amax are the two halves of one tensor."""
    gate, up = normal(32, 256, seed=1), 3 * normal(32, 256, seed=2)
    shared = torch.maximum(amax(gate, SPECS[name]), amax(up, SPECS[name]))
    whole = quantize(torch.cat((gate, up)), SPECS[name])
    halves = [quantize(half, SPECS[name], amax=shared) for half in (gate, up)]
    for part in ("codes", "block_scale"):
        if part in whole:
            assert torch.equal(_bytes(whole[part]), torch.cat([_bytes(half[part]) for half in halves]))
    assert all(torch.equal(half["outer_scale"], whole["outer_scale"]) for half in halves)


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.scope == "per_tensor"])
def test_elements_beyond_a_given_amax_saturate(name: str) -> None:
    """An amax that is smaller than the weight's own is no reason to wrap around."""
    weight, given_amax = normal(16, 256), torch.tensor(0.001)
    found = quantize(weight, SPECS[name], amax=given_amax)
    assert differences(found, by_reference(weight, SPECS[name], given_amax)) == []


@pytest.mark.parametrize("name", SPECS)
def test_bands_of_rows_give_what_the_whole_gives(name: str) -> None:
    """The reference alone."""
    weight = normal(2, *MANY_BANDS)
    outer = amax(weight, SPECS[name]) if SPECS[name].scope else None
    assert differences(in_bands(weight, SPECS[name], outer), by_reference(weight, SPECS[name])) == []


@pytest.mark.parametrize("scope", ["per_tensor", "per_token"])
def test_the_amax_is_one_a_matrix_or_one_a_row(scope: str) -> None:
    """FP32, whatever the weight's dtype."""
    weight = normal(3, 16, 64, dtype=torch.float16)
    spec = Quantization("nvfp4", (1, 16), "e4m3", scope)  # type: ignore[arg-type]
    found, wanted = amax(weight, spec), weight.float().abs()
    assert found.dtype == torch.float32
    assert torch.equal(found, wanted.amax(-1, keepdim=True) if scope == "per_token" else wanted.amax((-2, -1)))


def _bytes(part: torch.Tensor) -> torch.Tensor:
    return part.view(torch.uint8)


def _choice(count: int, seed: int) -> torch.Tensor:
    return torch.randint(count, (16, 128), generator=torch.Generator().manual_seed(seed))
