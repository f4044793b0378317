"""Quantization-aware training against the converter's quantizer, and the ready policy that asks for it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from quant.specs import SPECS
from quant.weights import every_finite_bf16, normal, raw, shuffled
from torch import nn
from torch.nn.utils import parametrize

import precc
from precc.formats import Quantization
from precc.graph.model import Role
from precc.quant import FakeQuantized, dequantize, fake_quantize, quantize, round_in_place, roundings

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
        rounded = fake_quantize(weight, SPECS[name], axis=axis, stored=torch.bfloat16)
        (gradient,) = torch.autograd.grad(rounded, weight, given)
        assert torch.equal(gradient, given)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_an_fp32_weight_is_rounded_as_it_is_handed_over(name: str, stored: torch.dtype) -> None:
    """The served bits of what the trainer exports; straight from FP32 many of the elements would be others."""
    weight, spec = normal(256, 512, dtype=torch.float32), SPECS[name]
    served = dequantize(quantize(weight.to(stored), spec), spec, dtype=stored)
    rounded = fake_quantize(weight, spec, stored=stored)
    assert rounded.dtype is torch.float32
    assert raw(rounded.to(stored)) == raw(served)
    assert torch.equal(rounded, served.float())
    if name == "int4_g32" and stored is torch.bfloat16:
        unstored = dequantize(quantize(weight, spec), spec)
        assert 0.1 < (rounded != unstored).float().mean() < 0.9


def test_an_fp32_weight_has_to_say_how_it_is_handed_over() -> None:
    """As a function when it is called; the dtype itself when a parametrization is made."""
    weight = normal(64, 128, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"an FP32 weight is served from .*`stored=torch\.bfloat16`"):
        fake_quantize(weight, SPECS["int4_g32"])
    for wrong in (torch.float32, torch.int8, "bfloat16"):
        with pytest.raises(ValueError, match=r"handed over in torch\.bfloat16 or torch\.float16, not in"):
            FakeQuantized(SPECS["int4_g32"], stored=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [fake_quantize, FakeQuantized])
def test_what_is_no_decision_is_refused_when_it_is_given(made: Any) -> None:
    """Not at the first forward."""
    weight = (normal(64, 128),) if made is fake_quantize else ()
    with pytest.raises(TypeError, match="None is a NoneType, no Quantization"):
        made(*weight, None)
    with pytest.raises(ValueError, match="mxfp4 has no quantizer"):
        made(*weight, Quantization("mxfp4", (1, 32), "e8m0"))
    with pytest.raises(ValueError, match="int4 has block scales in bf16, and this decision fp32"):
        made(*weight, Quantization("int4", (1, 32), "fp32"))


def test_a_rounding_in_place_leaves_the_parameter_where_it_is() -> None:
    """Names, the object, its hooks and its state are those of before; only what is read is rounded."""
    layer = nn.Linear(128, 16, dtype=torch.bfloat16)
    weight, spec = layer.weight, SPECS["int4_g32"]
    round_in_place(layer, ["weight"], FakeQuantized(spec))
    assert [name for name, _ in layer.named_parameters()] == list(layer.state_dict()) == ["weight", "bias"]
    assert dict(layer.named_parameters())["weight"] is weight
    assert raw(layer.weight.detach()) == raw(fake_quantize(weight.detach(), spec))
    assert raw(layer.state_dict()["weight"]) == raw(weight.detach())
    layer(torch.randn(4, 128, dtype=torch.bfloat16)).sum().backward()
    assert weight.grad is not None
    assert list(roundings(layer)) == ["weight"]
    assert isinstance(layer, nn.Linear)
    assert "int4 group 32" in repr(layer)


def test_a_layer_that_rounds_can_be_moved_copied_and_loaded() -> None:
    """As what trains it does: another dtype, a copy with weights of its own, a checkpoint in place and assigned."""
    layer, spec = nn.Linear(128, 16, bias=False), SPECS["int4_g32"]
    round_in_place(layer, ["weight"], FakeQuantized(spec))
    layer.to(torch.bfloat16)
    copied, stored = copy.deepcopy(layer), normal(16, 128)
    for assign in (False, True):
        layer.load_state_dict({"weight": stored}, assign=assign)
        assert raw(layer.weight.detach()) == raw(fake_quantize(stored, spec))
    assert raw(copied.weight.detach()) != raw(layer.weight.detach())
    assert raw(copied.weight.detach()) == raw(fake_quantize(copied.state_dict()["weight"], spec))


def test_only_a_parameter_that_is_not_rounded_can_be() -> None:
    """Each says which; torch's own parametrization counts."""
    layer, spec = nn.Linear(128, 16, dtype=torch.bfloat16), SPECS["int4_g32"]
    with pytest.raises(ValueError, match="a Linear has no parameter `weight0` to round"):
        round_in_place(layer, ["weight0"], FakeQuantized(spec))
    round_in_place(layer, ["weight"], FakeQuantized(spec))
    with pytest.raises(ValueError, match="weight of this Linear is rounded already"):
        round_in_place(layer, ["weight"], FakeQuantized(spec))
    other = nn.Linear(128, 16, dtype=torch.bfloat16)
    parametrize.register_parametrization(other, "weight", FakeQuantized(spec))
    assert list(roundings(other)) == ["weight"]
    assert roundings(nn.Linear(2, 2)) == {}


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
