"""Weights to quantize, and byte comparison of what comes out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from precc.formats import FORMATS, Quantization
from precc.quant.blocks import magnitudes
from precc.quant.reference import QUANTIZERS, Parts


def every_bf16() -> Tensor:
    """All 65,536 BF16 bit patterns, in order."""
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def every_finite_bf16() -> Tensor:
    """All finite ones as [256, 256], zeros behind them."""
    every = every_bf16()
    finite = every[every.isfinite()]
    return torch.cat((finite, torch.zeros((1 << 16) - finite.numel(), dtype=torch.bfloat16))).view(256, 256)


def shuffled(weight: Tensor, seed: int = 0) -> Tensor:
    """The same elements in another order: large beside small."""
    order = torch.randperm(weight.numel(), generator=torch.Generator().manual_seed(seed))
    return weight.reshape(-1)[order].view(weight.shape)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16, spread: float = 0.0) -> Tensor:
    """Gaussian weights, each times 2^(spread · another Gaussian)."""
    draw = torch.Generator().manual_seed(seed)
    scale = torch.exp2(spread * torch.randn(shape, generator=draw))
    return (0.02 * torch.randn(shape, generator=draw) * scale).to(dtype)


def by_reference(matrix: Tensor, spec: Quantization, amax: Tensor | None = None) -> Parts:
    """What the specification gives, in one piece; NaN and Inf included."""
    if amax is None and FORMATS[spec.format].outer_scale:
        amax = magnitudes(matrix).amax(-1, keepdim=True)
        amax = amax if spec.scope in ("per_token", "per_channel") else amax.amax((-2, -1))
    return QUANTIZERS[spec.format](matrix, spec, amax)


def raw(tensor: Tensor) -> bytes:
    """The storage of a contiguous tensor."""
    assert tensor.is_contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def differences(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    """What differs between two sets of parts: names, dtypes, shapes, strides, bytes."""
    if found.keys() != wanted.keys():
        return [f"parts {sorted(found)}, not {sorted(wanted)}"]
    return [f"{name}: {problem}" for name in wanted for problem in _of_one(found[name], wanted[name])]


def _of_one(found: Tensor, wanted: Tensor) -> list[str]:
    described = [(one.dtype, tuple(one.shape), one.stride()) for one in (found, wanted)]
    if described[0] != described[1]:
        return [f"{described[0]}, not {described[1]}"]
    pairs = zip(raw(found), raw(wanted), strict=True)
    count = sum(left != right for left, right in pairs) if raw(found) != raw(wanted) else 0
    return [f"{count} bytes of {wanted.nbytes} differ"] if count else []
