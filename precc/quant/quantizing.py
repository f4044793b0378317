"""The one entrance: checks, the outer scale's amax, and the path that the device and the installed packages allow."""

from __future__ import annotations

import torch
from torch import Tensor

from precc.formats import FORMATS, Quantization
from precc.quant import fast
from precc.quant.bands import in_bands
from precc.quant.blocks import magnitudes
from precc.quant.checks import (
    require_amax,
    require_finite,
    require_fit,
    require_magnitudes,
    require_weight,
)
from precc.quant.reference import QUANTIZERS, Parts
from precc.quant.specs import require_spec


def quantize(
    weight: Tensor, spec: Quantization, *, amax: Tensor | None = None, axis: int = -1, finite: bool = True
) -> Parts:
    """The stored parts of a weight [..., rows, columns], as `precc.formats.stored_parts` lists them.

    `weight` is BF16, FP16 or FP32, of any strides; leading axes are stacked experts, each with its own outer scale;
    `axis` is the contraction axis. `amax` is what the outer scale is made of where it is shared with other tensors
    (see `amax`). E8M0 scales and packed E2M1 codes are uint8, E4M3 ones float8_e4m3fn, packed INT4 codes int32.
    `finite=False` lets NaN and Inf through as TransformerEngine's kernels do, for activations.

    Raises NotFinite for NaN and Inf, ValueError for a decision that its format does not have, for a shape that the
    blocks do not divide and for an amax that is none, TypeError for what is no tensor or no Quantization.
    """
    require_spec(spec, tuple(QUANTIZERS))
    require_weight(weight)
    matrix = contraction_last(weight, axis)
    require_fit(matrix, spec)
    if FORMATS[spec.format].outer_scale:
        amax = _largest(matrix, weight, spec, finite) if amax is None else _expanded(amax, matrix, spec)
        if finite:
            require_magnitudes(amax, weight)
    if finite and fast.accepts(matrix):
        parts = fast.quantize(matrix, spec, amax)
        if parts is not None:
            return parts
    if finite:
        require_finite(weight)
    return in_bands(matrix, spec, amax)


def amax(weight: Tensor, spec: Quantization, *, axis: int = -1) -> Tensor:
    """What the outer scale of a weight is made of, FP32: one value a matrix (shape of the leading axes) or a row.

    Tensors that share one outer scale (gate and up; query, key and value) share the largest of theirs:
    `torch.maximum(amax(gate, spec), amax(up, spec))`. Raises as `quantize` does.
    """
    require_spec(spec, tuple(QUANTIZERS))
    require_weight(weight)
    matrix = contraction_last(weight, axis)
    require_fit(matrix, spec)
    return _largest(matrix, weight, spec, finite=True)


def contraction_last(weight: Tensor, axis: int) -> Tensor:
    """A view with the contraction axis last, and the others in their order."""
    return weight.movedim(axis, -1)


def _largest(matrix: Tensor, weight: Tensor, spec: Quantization, finite: bool) -> Tensor:
    by_row = fast.largest(matrix) if finite and fast.accepts(matrix) else None
    if by_row is None:
        if finite:
            require_finite(weight)
        by_row = magnitudes(matrix).amax(-1, keepdim=True)
    return by_row if spec.scope in ("per_token", "per_channel") else by_row.amax((-2, -1))


def _expanded(given: Tensor, matrix: Tensor, spec: Quantization) -> Tensor:
    shape = (*matrix.shape[:-1], 1) if spec.scope in ("per_token", "per_channel") else matrix.shape[:-2]
    require_amax(given, shape)
    return given.to(matrix.device, torch.float32).broadcast_to(shape)
