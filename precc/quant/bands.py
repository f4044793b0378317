"""The reference over bands of rows, so that its temporaries stay small; whole on a GPU, where they are cheap."""

from __future__ import annotations

import torch
from torch import Tensor

from precc.formats import Quantization
from precc.formats.storage import Part
from precc.quant.reference import QUANTIZERS, Parts

ELEMENTS_A_BAND = 1 << 18
"""Of one band: its temporaries stay in a core's cache."""
_ROWS = 128
"""Bands start at multiples of the tallest block."""


def in_bands(matrix: Tensor, spec: Quantization, amax: Tensor | None) -> Parts:
    """The parts that the reference gives for the whole of [..., rows, columns]."""
    quantizer, rows = QUANTIZERS[spec.format], matrix.shape[-2]
    step = max(ELEMENTS_A_BAND * rows // matrix.numel() // _ROWS, 1) * _ROWS
    if matrix.device.type != "cpu" or step >= rows:
        return _contiguous(quantizer(matrix, spec, amax))
    starts = range(0, rows, step)
    pieces = [quantizer(matrix[..., at : at + step, :], spec, _of_rows(amax, spec, at, step)) for at in starts]
    parts: Parts = {part: _joined(part, [piece[part] for piece in pieces], spec) for part in pieces[0]}
    if "shape" in parts:
        parts["shape"] = torch.tensor(matrix.shape[-2:], dtype=torch.int64)
    return _contiguous(parts)


def _contiguous(parts: Parts) -> Parts:
    """Memory of its own for each part, in order: torch keeps the strides of a transposed weight otherwise."""
    return {part: value.contiguous() for part, value in parts.items()}


def _of_rows(amax: Tensor | None, spec: Quantization, at: int, step: int) -> Tensor | None:
    return amax if amax is None or not _is_by_row(spec) else amax[..., at : at + step, :]


def _joined(part: Part, pieces: list[Tensor], spec: Quantization) -> Tensor:
    whole = part == "shape" or (part == "outer_scale" and not _is_by_row(spec))
    return pieces[0] if whole else torch.cat(pieces, dim=-2)


def _is_by_row(spec: Quantization) -> bool:
    return spec.scope in ("per_token", "per_channel")
