"""From stored parts to numbers: what an engine multiplies with, in FP32, then rounded once to what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from precc.formats import Quantization
from precc.formats.storage import Part
from precc.quant.blocks import spread
from precc.quant.checks import require_scales, unfit
from precc.quant.elements import from_e2m1, from_e4m3, from_e8m0
from precc.quant.packing import unpack_e2m1, unpack_int4
from precc.quant.specs import require_spec


def dequantize(
    parts: Mapping[Part, Tensor],
    spec: Quantization,
    *,
    shape: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The weight [..., rows, columns] that its stored parts stand for, contraction axis last.

    A product is rounded where an engine rounds it: code · (block scale · outer scale) for NVFP4, code · scale for the
    others. Integers may have groups of any size, as other tools store them. Raises ValueError for another decision that
    its format does not have, for scales that are not those of the decision's blocks and scope, and where the codes are
    not of `shape`; TypeError for no Quantization, and KeyError for a part that is missing.
    """
    require_spec(spec, tuple(DEQUANTIZERS), any_group=True)
    weight = DEQUANTIZERS[spec.format](parts, spec)
    if shape is not None and tuple(weight.shape) != tuple(shape):
        raise ValueError(f"these parts hold a weight of shape {list(weight.shape)}, not {list(shape)}")
    return weight.to(dtype)


def _mxfp8(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    return _scaled(from_e4m3(parts["codes"]), from_e8m0(parts["block_scale"]), spec)


def _mxfp4(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    return _scaled(from_e2m1(unpack_e2m1(parts["codes"])), from_e8m0(parts["block_scale"]), spec)


def _nvfp4(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    """In blocks of 16×16, too, each row has scales of its own."""
    values = from_e2m1(unpack_e2m1(parts["codes"]))
    above = _outer(parts, values, spec)
    scale = parts["block_scale"]
    require_scales("block", scale, values, spec, (1, 16))
    return values * spread(from_e4m3(scale) * above, (1, 16), *values.shape[-2:])


def _fp8_block(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    return _scaled(from_e4m3(parts["codes"]), parts["block_scale"], spec)


def _fp8(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    values = from_e4m3(parts["codes"])
    return values * _outer(parts, values, spec)


def _int4(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    return _scaled(unpack_int4(parts["codes"]).to(torch.float32), parts["block_scale"], spec)


def _int8(parts: Mapping[Part, Tensor], spec: Quantization) -> Tensor:
    return _scaled(parts["codes"].to(torch.float32), parts["block_scale"], spec)


DEQUANTIZERS: dict[str, Callable[[Mapping[Part, Tensor], Quantization], Tensor]] = {
    "mxfp8": _mxfp8,
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
    "fp8_block": _fp8_block,
    "fp8": _fp8,
    "int4": _int4,
    "int8": _int8,
}


def _scaled(values: Tensor, scale: Tensor, spec: Quantization) -> Tensor:
    assert spec.block is not None
    require_scales("block", scale, values, spec, spec.block)
    return values * spread(scale.to(torch.float32), spec.block, *values.shape[-2:])


def _outer(parts: Mapping[Part, Tensor], values: Tensor, spec: Quantization) -> Tensor:
    """The outer scales as they multiply: [..., 1, 1], or one a row."""
    outer = parts["outer_scale"]
    if spec.scope != "per_tensor":
        require_scales("outer", outer, values, spec, (1, values.shape[-1]))
        return outer
    if outer.shape != values.shape[:-2]:
        raise unfit("outer", outer, values, spec, values.shape[:-2])
    return outer[..., None, None]
