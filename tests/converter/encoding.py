"""Weights in low precision as tools store them, and the numbers that they stand for, by tables and by the tools' own
unpacking: nothing here is the code that converts.

Tensors are given and taken by word, the last component of their names: `weight_scale` beside `weight`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from converter.decoding import E2M1, E4M3

from precc.graph.forms import ROW, Form
from precc.graph.layouts import COMPANIONS, layout_of

Words = dict[str, torch.Tensor]

FP8, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu
FP4 = torch.tensor(E2M1, dtype=torch.float32)

# --- to what is stored -------------------------------------------------------------------------------


def encode(form: Form, weight: torch.Tensor, power_of_two: bool = False) -> Words:
    """A matrix [rows, columns] in FP32, or a stack of them, in a form."""
    words = form.words or tuple(layout_of(form).words)
    if weight.ndim == 3:
        every = [encode(form, matrix, power_of_two) for matrix in weight]
        return {word: torch.stack([one[word] for one in every]) for word in words}
    codes, scale = _ENCODERS[form.dtype](weight, form, power_of_two)
    return _named(words, weight, codes, scale)


def _named(words: tuple[str, ...], weight: torch.Tensor, codes: torch.Tensor, scale: Words) -> Words:
    made = {words[0]: codes, "weight_shape": torch.tensor(weight.shape), **scale}
    made |= {"input_scale": torch.tensor(0.25), "input_global_scale": torch.tensor([8.0])}
    for word in ("weight_scale_inv", "weight_scale", "weight_scales", "scale"):
        made.setdefault(word, scale["scales"])
    if words[0] == "weight_blocks":
        made[words[0]] = codes.unflatten(-1, (-1, 16))
    return {word: made[word].contiguous() for word in words}


def _fp8(weight: torch.Tensor, form: Form, power_of_two: bool) -> tuple[torch.Tensor, Words]:
    if form.block not in (None, ROW):
        codes, scale = in_fp8_blocks(weight, power_of_two)
        return codes, {"scales": scale}
    scale = weight.abs().amax(1, keepdim=True) / 448 if form.block == ROW else weight.abs().amax() / 448
    return (weight / scale).to(FP8), {"scales": scale}


def _mxfp8(weight: torch.Tensor, form: Form, power_of_two: bool) -> tuple[torch.Tensor, Words]:
    groups = weight.unflatten(1, (-1, 32))
    exponent = (groups.abs().amax(-1) / 448).log2().ceil()
    codes = (groups / torch.exp2(exponent)[..., None]).flatten(1).to(FP8)
    return codes, {"scales": (exponent + 127).to(torch.uint8)}


def _fp4(weight: torch.Tensor) -> torch.Tensor:
    """The nearest codes of E2M1, two a byte."""
    nearest = (weight[..., None] - FP4).abs().argmin(-1).to(torch.uint8)
    return nearest[..., ::2] | nearest[..., 1::2] << 4


def _mxfp4(weight: torch.Tensor, form: Form, power_of_two: bool) -> tuple[torch.Tensor, Words]:
    groups = weight.unflatten(1, (-1, 32))
    exponent = (groups.abs().amax(-1) / 6).log2().ceil()
    codes = _fp4((groups / torch.exp2(exponent)[..., None]).flatten(1))
    signed = codes.view(torch.int8) if form.words == ("weight", "scale") else codes
    return signed, {"scales": (exponent + 127).to(torch.uint8)}


def _nvfp4(weight: torch.Tensor, form: Form, power_of_two: bool) -> tuple[torch.Tensor, Words]:
    """The outer scale is one of a few powers of two, so that gate and up have one, and turning it over is exact."""
    groups, outer = weight.unflatten(1, (-1, 16)), torch.tensor(2.0**-10)
    scale = (groups.abs().amax(-1) / 6 / outer).to(FP8)
    codes = _fp4((groups / (scale.float() * outer).clamp_min(1e-9)[..., None]).flatten(1))
    return codes, {"scales": scale, "weight_scale_2": outer, "weight_global_scale": (1 / outer).reshape(1)}


def _integers(weight: torch.Tensor, form: Form, power_of_two: bool) -> tuple[torch.Tensor, Words]:
    assert form.block is not None
    bits = int(form.dtype.removeprefix("int"))
    groups = weight.unflatten(1, (-1, form.block[1] or weight.shape[1]))
    scale = (groups.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 0.5)).to(torch.bfloat16)
    codes = (groups / scale.float()).round().clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).flatten(1).to(torch.int8)
    return pack_to_int32(codes, 4) if bits == 4 else codes, {"scales": scale.squeeze(-1)}


_ENCODERS: dict[str, Callable[[torch.Tensor, Form, bool], tuple[torch.Tensor, Words]]] = {
    "fp8": _fp8,
    "mxfp8": _mxfp8,
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
    "int4": _integers,
    "int8": _integers,
}


def in_fp8_blocks(weight: torch.Tensor, power_of_two: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix as FP8 checkpoints store it: codes, and the FP32 scale of each 128×128 block."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -columns % 128, 0, -rows % 128))
    blocks = padded.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
    scale = blocks.abs().amax((1, 3)) / 448
    if power_of_two:
        scale = torch.exp2(scale.log2().ceil())
    codes = (blocks / scale[:, None, :, None]).to(FP8)
    return codes.flatten(2, 3).flatten(0, 1)[:rows, :columns].contiguous(), scale


# --- and back ----------------------------------------------------------------------------------------


def words_beside(name: str, weights: Mapping[str, torch.Tensor]) -> Words:
    """What a checkpoint stores for a weight, by word."""
    module, _, own = name.rpartition(".")
    stem = f"{module}." if own == "weight" else name
    spelled = {word: word if own == "weight" else word.removeprefix("weight") for word in ("weight", *COMPANIONS)}
    return {word: weights[stem + end] for word, end in spelled.items() if stem + end in weights}


def decode(words: Words) -> torch.Tensor:
    """The numbers of a weight in FP32, or as they are stored."""
    codes = words.get("weight", words.get("weight_packed", words.get("weight_blocks")))
    assert codes is not None
    scale = next((words[word] for word in _SCALES if word in words), None)
    if scale is None:
        return codes
    numbers = _numbers(codes, words)
    if "weight_blocks" in words:
        numbers = numbers.flatten(-2)
    outer = words["weight_scale_2"] if "weight_scale_2" in words else 1 / words.get("weight_global_scale", _ONE)
    if numbers.ndim == 3:
        outer = outer.reshape(-1, 1, 1)
    return numbers * _spread(_scales(scale) * outer, numbers)


_ONE = torch.ones(())
_SCALES = ("weight_scale_inv", "weight_scale", "weight_scales", "scale")


def _numbers(codes: torch.Tensor, words: Words) -> torch.Tensor:
    if "weight_shape" in words:
        return unpack_from_int32(codes, 4, torch.Size(words["weight_shape"].tolist())).float()
    if codes.dtype == FP8:
        return torch.tensor(E4M3, dtype=torch.float32)[codes.view(torch.uint8).long()]
    if codes.dtype == torch.int8 and "scale" not in words:
        return codes.float()
    pairs = codes.view(torch.uint8).long()
    return FP4[torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2)]


def _scales(scale: torch.Tensor) -> torch.Tensor:
    if scale.dtype in (torch.uint8, E8M0):
        return torch.exp2(scale.view(torch.uint8).double() - 127).float()
    return (
        torch.tensor(E4M3, dtype=torch.float32)[scale.view(torch.uint8).long()] if scale.dtype == FP8 else scale.float()
    )


def _spread(scale: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """One scale an element, for blocks of 128×128 and for parts of a row."""
    if scale.numel() == 1 or scale.ndim < 2:
        return scale.reshape(-1, *(1,) * (numbers.ndim - 1)) if scale.numel() > 1 else scale
    rows, columns = numbers.shape[-2:]
    high = 1 if scale.shape[-2] == rows else 128
    wide = 128 if high == 128 else columns // scale.shape[-1]
    return scale.repeat_interleave(high, -2)[..., :rows, :].repeat_interleave(wide, -1)[..., :columns]
