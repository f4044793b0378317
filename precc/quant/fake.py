"""Quantization-aware training: a weight rounded as the converter will round it, with a straight-through gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from precc.formats import Quantization
from precc.quant.dequantizing import dequantize
from precc.quant.quantizing import quantize


def fake_quantize(weight: Tensor, spec: Quantization, *, axis: int = -1) -> Tensor:
    """The weight that an engine will multiply with, in the dtype and shape of `weight`.

    It is `dequantize(quantize(weight))`, so it uses the scale as it is stored (BF16 for INT4). The gradient passes
    unchanged. Raises NotFinite for NaN and Inf, and ValueError for a shape that the blocks do not divide.
    """
    rounded: Tensor = _StraightThrough.apply(weight, spec, axis)  # type: ignore[no-untyped-call]
    return rounded


class FakeQuantized(nn.Module):
    """A parametrization of a weight, for `torch.nn.utils.parametrize`.

    `register_parametrization(linear, "weight", FakeQuantized(decision.weight))`: the optimizer keeps the weight in
    full, the forward sees it rounded.
    """

    def __init__(self, spec: Quantization, *, axis: int = -1) -> None:
        super().__init__()
        self.spec = spec
        self.axis = axis

    def forward(self, weight: Tensor) -> Tensor:
        """The weight rounded."""
        return fake_quantize(weight, self.spec, axis=self.axis)

    def extra_repr(self) -> str:
        """The decision, as a policy would write it."""
        return str(self.spec)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, spec: Quantization, axis: int) -> Tensor:
        parts = quantize(weight.detach(), spec, axis=axis)
        return dequantize(parts, spec, dtype=weight.dtype).movedim(-1, axis)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0], None, None
