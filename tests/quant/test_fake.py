"""Quantization-aware training against the converter's quantizer, and the ready policy that asks for it."""

from __future__ import annotations

import pytest
import torch
from quant.specs import SPECS
from quant.weights import every_finite_bf16, normal, raw, shuffled
from torch import nn
from torch.nn.utils import parametrize

import precc
from precc.formats import Quantization
from precc.graph.model import Role
from precc.quant import FakeQuantized, dequantize, fake_quantize, quantize

INT4 = ["int4_g32", "int4_g128"]


@pytest.mark.parametrize("name", INT4)
def test_a_trained_weight_is_the_served_weight_to_the_bit(name: str) -> None:
    """What the trainer's forward sees, and what is quantized, stored and dequantized: the same BF16."""
    for weight in (normal(256, 512, spread=2), shuffled(every_finite_bf16()), normal(2, 64, 256)):
        served = dequantize(quantize(weight, SPECS[name]), SPECS[name], dtype=torch.bfloat16)
        assert raw(fake_quantize(weight, SPECS[name])) == raw(served)


def test_the_stored_scale_is_the_one_used() -> None:
    """With the scale left in FP32, as other trainers do, some weights would not be those that are served."""
    weight, spec = normal(256, 512), SPECS["int4_g32"]
    parts = quantize(weight, spec)
    exact = (weight.float().view(256, -1, 32).abs().amax(-1) * (1 / 7)).clamp_min(1e-5)
    unstored = dequantize({**parts, "block_scale": exact}, spec, dtype=torch.bfloat16)
    differing = (fake_quantize(weight, spec) != unstored).float().mean()
    assert 0.02 < differing < 0.15


@pytest.mark.parametrize("name", SPECS)
def test_the_gradient_passes_unchanged(name: str) -> None:
    """Straight through, for any format and for another contraction axis."""
    weight = normal(2, 128, 128, dtype=torch.float32).requires_grad_()
    given = torch.randn(2, 128, 128)
    for axis in (-1, 1):
        (gradient,) = torch.autograd.grad(fake_quantize(weight, SPECS[name], axis=axis), weight, given)
        assert torch.equal(gradient, given)


def test_a_linear_layer_trains_on_the_rounded_weight() -> None:
    """As a parametrization: the forward uses the grid, the optimizer moves the weight beneath it."""
    layer = nn.Linear(128, 16, bias=False, dtype=torch.bfloat16)
    source = layer.weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", FakeQuantized(SPECS["int4_g32"]))
    assert raw(layer.weight.detach()) == raw(fake_quantize(source, SPECS["int4_g32"]))
    batch = torch.randn(4, 128, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    layer(batch).square().sum().backward()
    optimizer.step()
    kept = layer.parametrizations.weight.original  # type: ignore[union-attr, operator]
    assert not torch.equal(kept, source)
    assert raw(layer.weight.detach()) == raw(fake_quantize(kept.detach(), SPECS["int4_g32"]))
    assert "int4 group 32" in repr(layer)


def test_fake_quantization_is_idempotent() -> None:
    """A rounded weight rounds to itself where its scale is stored exactly."""
    spec = SPECS["int4_g32"]
    weight = (torch.randint(-7, 8, (64, 128)) / 8).to(torch.bfloat16)
    weight[:, ::32] = 7 / 8
    assert torch.equal(fake_quantize(weight, spec), weight)


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3"])
def test_the_ready_policy_trains_and_serves_one_format(model: str) -> None:
    """`int4_qat`: every routed expert is INT4 in groups of 32, fake-quantized by the trainer; nothing else is."""
    contract = precc.compile("int4_qat", model)
    experts = [entry for entry in contract.entries if entry.decision.is_quantized]
    assert experts
    assert {entry.decision.weight for entry in experts} == {Quantization("int4", (1, 32), "bf16")}
    assert {entry.decision.train for entry in experts} == {"fake_quant"}
    assert {entry.tensor.role for entry in experts} == {Role.ROUTED_EXPERTS}
