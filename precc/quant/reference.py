"""The specification: every format as plain PyTorch, on any device; the fast paths are tested against it.

A quantizer takes a weight [..., rows, columns] whose last axis is contracted, the decision, and the amax that the
outer scale is made of (None where the format has none). NaN and Inf follow TransformerEngine's kernels, as an
activation quantizer needs; for a weight they are refused before (`checks`).

Sources: TransformerEngine's generic MXFP8 kernel, its NVFP4 kernels without fast math, its block and current scaling
for FP8; Miles' converter for FP8 channels and INT4; SGLang's kernel for FP8 tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from precc.formats import Quantization
from precc.formats.storage import Part
from precc.quant import four_over_six
from precc.quant.blocks import block_amax, spread
from precc.quant.elements import E4M3_MAX, FP32_MAX, from_e4m3, reciprocal_of_e8m0, to_e2m1, to_e4m3, to_e8m0
from precc.quant.packing import pack_e2m1, pack_int4
from precc.quant.scales import channel_scale, divided, fp8_encode, nvfp4_encode, token_factor

Parts: TypeAlias = dict[Part, Tensor]
Quantizer: TypeAlias = Callable[[Tensor, Quantization, Tensor | None], Parts]

_448TH, _SIXTH = 1 / 448, 1 / 6
"""Rounded to FP32 where they are used: 0x3B124925 and 0x3E2AAAAB."""
INTEGER_MAX = {"int4": 7, "int8": 127}
LEAST_INTEGER_SCALE = 1e-5


def mxfp8(weight: Tensor, spec: Quantization, outer: Tensor | None) -> Parts:
    """E4M3 codes and E8M0 scales: amax · RN(1/448) rounded up to a power of two."""
    scale = to_e8m0(block_amax(weight, _block(spec)) * _448TH)
    return {"codes": _fp8(weight, reciprocal_of_e8m0(scale), spec), "block_scale": scale}


def nvfp4(weight: Tensor, spec: Quantization, outer: Tensor | None) -> Parts:
    """E2M1 codes, E4M3 block scales e4m3(amax · (S · RN(1/6))), and 1/S.

    A block whose scale rounds to zero keeps codes of ±6. In blocks of 16×16 the 16 rows repeat their scale.
    """
    assert outer is not None
    high, above = _block(spec)[0], _above_blocks(outer, spec)
    amax = spread(block_amax(weight, (high, 16)), (high, 1), weight.shape[-2], weight.shape[-1] // 16)
    if spec.four_over_six is not None:
        adaptive = spec.four_over_six
        encode = nvfp4_encode(above, float(adaptive.maximum))
        distance = four_over_six.exact(above, adaptive)
        codes, scale = four_over_six.four_over_six(weight, amax, encode, adaptive.error, distance, high)
    else:
        encode = nvfp4_encode(above)
        scale = to_e4m3((amax * (encode * _SIXTH)).clamp_max(FP32_MAX))
        factor = divided(1.0, from_e4m3(scale) * divided(1.0, encode)).clamp_max(FP32_MAX)
        codes = to_e2m1(weight.to(torch.float32) * spread(factor, (1, 16), *weight.shape[-2:]))
    return {
        "codes": pack_e2m1(codes),
        "block_scale": scale.view(torch.float8_e4m3fn),
        "outer_scale": divided(1.0, encode).reshape(outer.shape),
    }


def fp8_block(weight: Tensor, spec: Quantization, outer: Tensor | None) -> Parts:
    """E4M3 codes and one FP32 scale 1/S a block, blocks at the edges partial; S is a power of two for `pow2`."""
    amax = block_amax(weight, _block(spec))
    encode = fp8_encode(amax, torch.finfo(weight.dtype).max, spec.scale == "pow2")
    return {"codes": _fp8(weight, encode, spec), "block_scale": divided(1.0, encode)}


def fp8(weight: Tensor, spec: Quantization, outer: Tensor | None) -> Parts:
    """E4M3 codes and one FP32 scale a tensor, channel or token."""
    assert outer is not None
    quantizer = {"per_tensor": _fp8_tensor, "per_channel": _fp8_channel, "per_token": _fp8_token}
    codes, scale = quantizer[spec.scope or "per_tensor"](weight, _above_blocks(outer, spec))
    return {"codes": to_e4m3(codes).view(torch.float8_e4m3fn), "outer_scale": scale.reshape(outer.shape)}


def integers(weight: Tensor, spec: Quantization, outer: Tensor | None) -> Parts:
    """Symmetric integers ±7 or ±127 and one BF16 scale a group.

    The scale is max(amax · RN(1/7), 1e-5) in FP32 while codes are made, and stored rounded to BF16. INT4 is packed
    eight a word, its shape [rows, columns] beside it.
    """
    most = INTEGER_MAX[spec.format]
    scale = (block_amax(weight, _block(spec)) * (1 / most)).clamp_min(LEAST_INTEGER_SCALE)
    rows, columns = weight.shape[-2:]
    steps = divided(weight.to(torch.float32), spread(scale, _block(spec), rows, columns))
    codes = steps.round().clamp(-most, most).nan_to_num().to(torch.int8)
    parts: Parts = {"codes": codes, "block_scale": scale.to(torch.bfloat16)}
    if spec.format == "int4":
        shape = torch.tensor((rows, columns), dtype=torch.int64, device=weight.device)
        parts |= {"codes": pack_int4(codes), "shape": shape}
    return parts


QUANTIZERS: dict[str, Quantizer] = {
    "mxfp8": mxfp8,
    "nvfp4": nvfp4,
    "fp8_block": fp8_block,
    "fp8": fp8,
    "int4": integers,
    "int8": integers,
}


def _fp8(weight: Tensor, encode: Tensor, spec: Quantization) -> Tensor:
    scaled = weight.to(torch.float32) * spread(encode, _block(spec), *weight.shape[-2:])
    return to_e4m3(scaled).view(torch.float8_e4m3fn)


def _fp8_tensor(weight: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    encode = fp8_encode(amax, FP32_MAX)
    return weight.to(torch.float32) * encode, divided(1.0, encode)


def _fp8_channel(weight: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    scale = channel_scale(amax, weight.dtype)
    return divided(weight.to(torch.float32), scale), scale


def _fp8_token(weight: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    scale = divided(amax, E4M3_MAX)
    return weight.to(torch.float32) * token_factor(scale), scale


def _above_blocks(outer: Tensor, spec: Quantization) -> Tensor:
    """One amax a matrix as [..., 1, 1]; one a row has that shape already."""
    return outer if spec.scope in ("per_token", "per_channel") else outer[..., None, None]


def _block(spec: Quantization) -> tuple[int, int]:
    assert spec.block is not None
    return spec.block
