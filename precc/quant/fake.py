"""Quantization-aware training: a weight rounded as the converter will round it, with a straight-through gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from precc.formats import Quantization
from precc.quant.checks import require_stored, require_weight
from precc.quant.dequantizing import dequantize
from precc.quant.quantizing import quantize
from precc.quant.reference import QUANTIZERS
from precc.quant.specs import require_spec


def fake_quantize(weight: Tensor, spec: Quantization, *, axis: int = -1, stored: torch.dtype | None = None) -> Tensor:
    """The weight that an engine will multiply with, in the dtype and shape of `weight`.

    It is `dequantize(quantize(weight))`, so it uses the scale as it is stored (BF16 for INT4). `stored` is the dtype
    of 16 bits that the trainer hands its weights over in, which are then quantized: a weight of another dtype is
    rounded to it first, and the numbers are those that are served. By default it is the weight's own; an FP32 weight
    has to say it. The gradient passes unchanged.

    Raises as `quantize` does, and ValueError for an FP32 weight without `stored`.
    """
    require_spec(spec, tuple(QUANTIZERS))
    require_weight(weight)
    require_stored(stored, weight.dtype)
    rounded: Tensor = _StraightThrough.apply(weight, spec, axis, stored or weight.dtype)  # type: ignore[no-untyped-call]
    return rounded


class FakeQuantized(nn.Module):
    """A rounding of a weight, for `torch.nn.utils.parametrize` or `round_in_place`.

    `register_parametrization(linear, "weight", FakeQuantized(decision.weight))`: the optimizer keeps the weight in
    full, the forward sees it rounded. Raises as `fake_quantize` does for what is no decision or no `stored` dtype.
    """

    def __init__(self, spec: Quantization, *, axis: int = -1, stored: torch.dtype | None = None) -> None:
        require_spec(spec, tuple(QUANTIZERS))
        require_stored(stored)
        super().__init__()
        self.spec = spec
        self.axis = axis
        self.stored = stored

    def forward(self, weight: Tensor) -> Tensor:
        """The weight rounded."""
        return fake_quantize(weight, self.spec, axis=self.axis, stored=self.stored)

    def extra_repr(self) -> str:
        """The decision, as a policy would write it."""
        return str(self.spec)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, spec: Quantization, axis: int, stored: torch.dtype) -> Tensor:
        parts = quantize(weight.detach().to(stored), spec, axis=axis)
        return dequantize(parts, spec, dtype=stored).movedim(-1, axis).to(weight.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return gradients[0], None, None, None
