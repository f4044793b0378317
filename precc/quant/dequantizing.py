"""From stored parts to numbers: what an engine multiplies with, in FP32, then rounded once to what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from precc.formats import Quantization
from precc.formats.storage import Part
from precc.quant.blocks import spread
from precc.quant.checks import require_format
from precc.quant.elements import from_e2m1, from_e4m3, from_e8m0
from precc.quant.packing import unpack_e2m1, unpack_int4


def dequantize(
    parts: Mapping[Part, Tensor],
    spec: Quantization,
    *,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The weight [..., rows, columns] that its stored parts stand for, contraction axis last.

    A product is rounded where an engine rounds it: code · (block scale · outer scale) for NVFP4, code · scale for the
    others. Raises ValueError where the codes are not of `shape`, and KeyError for a part that is missing.
    """
    require_format(spec, tuple(DEQUANTIZERS))
    weight = DEQUANTIZERS[spec.format](parts, spec)
    if shape is not None and tuple(weight.shape) != tuple(shape):
        raise ValueError(f"these parts hold a weight of shape {list(weight.shape)}, not {list(shape)}")
    return weight.to(dtype)


def _mxfp8(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    return _scaled(from_e4m3(parts["codes"]), from_e8m0(parts["block_scale"]), spec)


def _nvfp4(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    outer = parts["outer_scale"]
    above = outer if spec.scope in ("per_token", "per_channel") else outer[..., None, None]
    scale = from_e4m3(parts["block_scale"]) * above
    values = from_e2m1(unpack_e2m1(parts["codes"]))
    return values * spread(scale, (1, values.shape[-1] // scale.shape[-1]), *values.shape[-2:])


def _fp8_block(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    return _scaled(from_e4m3(parts["codes"]), parts["block_scale"], spec)


def _fp8(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    outer = parts["outer_scale"]
    return from_e4m3(parts["codes"]) * (outer if spec.scope != "per_tensor" else outer[..., None, None])


def _int4(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    return _scaled(unpack_int4(parts["codes"]).to(torch.float32), parts["block_scale"], spec)


def _int8(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    return _scaled(parts["codes"].to(torch.float32), parts["block_scale"], spec)


DEQUANTIZERS: dict[str, Callable[[Mapping[Part, Tensor], Quantization], Tensor]] = {
    "mxfp8": _mxfp8,
    "nvfp4": _nvfp4,
    "fp8_block": _fp8_block,
    "fp8": _fp8,
    "int4": _int4,
    "int8": _int8,
}


def _scaled(values: Tensor, scale: Tensor, spec: Quantization) -> Tensor:
    assert spec.block is not None
    return values * spread(scale.to(torch.float32), spec.block, *values.shape[-2:])
