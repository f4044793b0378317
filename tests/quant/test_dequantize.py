"""From parts to numbers and back."""

from __future__ import annotations

import pytest
import torch
from quant.specs import SPECS
from quant.weights import every_finite_bf16, normal, shuffled

from precc.quant import dequantize, quantize
from precc.quant.reference import INTEGER_MAX

RELATIVE_STEP = {"mxfp8": 1 / 16, "fp8_block": 1 / 16, "fp8": 1 / 16, "nvfp4": 1 / 4}
"""Half a step of the element's mantissa."""


@pytest.mark.parametrize("name", SPECS)
def test_dequantized_weights_are_within_a_step_of_the_source(name: str) -> None:
    """Half a step of the element, and a little for the scale's own rounding; or half a step of the integers."""
    spec, weight = SPECS[name], normal(128, 256, dtype=torch.float32)
    back = dequantize(quantize(weight, spec), spec)
    error, largest = (back - weight).abs(), weight.abs().max()
    if spec.format in RELATIVE_STEP:
        assert (error <= weight.abs() * RELATIVE_STEP[spec.format] * 1.4 + largest / 12).all()
        assert (error / largest).mean() < RELATIVE_STEP[spec.format] / 6
    else:
        most = INTEGER_MAX[spec.format]
        assert (error <= largest / most * (0.5 + most * 2.0**-8)).all()


@pytest.mark.parametrize("name", ["mxfp8", "fp8_block_pow2", "fp8_tiles_pow2"])
def test_quantizing_what_was_dequantized_changes_no_number(name: str) -> None:
    """Power-of-two scales: what can be stored is stored."""
    spec = SPECS[name]
    once = dequantize(quantize(normal(128, 256, spread=3), spec), spec)
    assert torch.equal(dequantize(quantize(once, spec), spec), once)


@pytest.mark.parametrize("name", SPECS)
def test_the_formula_holds_for_each_element(name: str) -> None:
    """Code × block scale × outer scale, in exact arithmetic, is within FP32's rounding of what is returned."""
    spec, weight = SPECS[name], shuffled(every_finite_bf16())[:128, :128].contiguous()
    parts = quantize(weight, spec)
    back = dequantize(parts, spec).double()
    ones = {part: torch.ones_like(value) for part, value in parts.items() if part == "outer_scale"}
    without = dequantize({**parts, **ones}, spec).double()
    outer = parts["outer_scale"].double() if "outer_scale" in parts else torch.ones((), dtype=torch.float64)
    assert torch.allclose(back, without * outer, rtol=2.0**-22, atol=2.0**-126)


def test_stacked_experts_are_dequantized_with_their_own_scales() -> None:
    """Each as if it were alone, in any dtype asked for."""
    weight = normal(3, 32, 128) * torch.tensor([1.0, 8.0, 64.0]).to(torch.bfloat16)[:, None, None]
    for spec in SPECS.values():
        whole = dequantize(quantize(weight, spec), spec, shape=weight.shape, dtype=torch.bfloat16)
        for expert in range(3):
            alone = dequantize(quantize(weight[expert], spec), spec, dtype=torch.bfloat16)
            assert torch.equal(whole[expert], alone)


def test_a_shape_that_the_codes_do_not_have_is_refused() -> None:
    """With both shapes."""
    parts = quantize(normal(32, 64), SPECS["mxfp8"])
    with pytest.raises(ValueError, match=r"shape \[32, 64\], not \[64, 32\]"):
        dequantize(parts, SPECS["mxfp8"], shape=(64, 32))
