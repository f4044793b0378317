"""The numbers that a source stands for: matrix by matrix, whatever it is stored in and however experts are stacked.

A matrix is [rows, columns], its contraction axis last. Of a stack there is one an expert, and no more than one of them
is dequantized at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from precc.formats import Quantization
from precc.formats.storage import Part
from precc.graph.layouts import layout_of
from precc.quant import dequantize
from precc.quant.elements import from_e8m0
from precc.quant.scales import divided
from precc_converter.conversion.findings import NOT_FINITE, WrongValues
from precc_converter.conversion.units import Member, beside, of_expert
from precc_converter.stored import RECIPROCAL, numbers_of, parts_of
from precc_converter.written import StoredTensor

Tensors: TypeAlias = Mapping[str, Tensor]
Parts: TypeAlias = dict[Part, Tensor]

ROWS = 128
"""Dequantized at a time: those of the tallest block, so that what is in between stays small."""

EXACT = {"mxfp4": torch.bfloat16}
"""What holds the numbers of a format exactly, where that is not FP32."""

CODES_IN = {"int4": 8, "nvfp4": 2, "mxfp4": 2}
"""Codes that one element of what is stored packs."""

REPAIR = "NaN and Inf have no quantized form: repair the source"


def matrices(member: Member, sources: Tensors, dtype: torch.dtype | None = None) -> Iterator[Tensor]:
    """Each matrix of a member: as it is stored in 16 or 32 bits, else dequantized and rounded once to `dtype`.

    Without one, to what holds it exactly, or FP32, in which codes are multiplied with their scale. Raises NotConverted
    with P602 for scales that are no numbers, and for numbers beyond the dtype.
    """
    form = member.made.form
    if form is None:
        weight = sources[member.name]
        yield from map(member.output_major, weight if weight.ndim == 3 else (weight,))
        return
    dtype = dtype or EXACT.get(form.dtype, torch.float32)
    for weights in stored(member, sources):
        found = [_dequantized(parts, member, dtype) if form.is_quantized else parts["codes"] for parts in weights]
        yield found[0] if len(found) == 1 else torch.cat(found)


def whole(member: Member, sources: Tensors, dtype: torch.dtype) -> Tensor:
    """A weight in its own shape and order of axes, dequantized and rounded once to `dtype`. Raises as `matrices`."""
    shape = member.made.outputs[0].shape
    if len(shape) < 3:
        return member.output_major(next(matrices(member, sources, dtype))).contiguous()
    weight = torch.empty(shape, dtype=dtype, device=sources[next(iter(sources))].device)
    for at, matrix in enumerate(matrices(member, sources, dtype)):
        weight[at] = member.output_major(matrix)
    return weight


def stored(member: Member, sources: Tensors) -> Iterator[list[Parts]]:
    """The stored parts of each matrix: those of one weight in low precision, or of several whose rows follow one
    another, where a stack's experts are stored one by one.

    Scales are bytes of E8M0 or E4M3, or floating point, outer ones FP32. Raises NotConverted with P602 for scales that
    are no numbers.
    """
    made = member.made
    assert made.form is not None
    words = parts_of(made.form)
    weights = [made.sources[at : at + len(words)] for at in range(0, len(made.sources), len(words))]
    if made.form.apart:
        for expert in range(member.experts):
            yield [_parts(member, words, _of_expert(weight, expert), sources) for weight in weights]
        return
    parts = _parts(member, words, weights[0], sources)
    if not member.is_stack:
        yield [_turned(member, parts)]
        return
    for expert in range(member.experts):
        yield [_turned(member, {part: value[expert] for part, value in parts.items() if part != "shape"})]


def _of_expert(weight: Sequence[StoredTensor], expert: int) -> list[StoredTensor]:
    """The stored tensors of one of the experts that a range in their names stands for."""
    return [one._replace(beside=of_expert(one.beside, expert)) for one in weight]


def _parts(member: Member, words: Mapping[str, Part], weight: Iterable[StoredTensor], sources: Tensors) -> Parts:
    """The parts of one weight as they are computed with, each in the shape that its layout gives it."""
    made: Parts = {}
    for (word, part), one in zip(words.items(), weight, strict=True):
        name = beside(member.name, one.beside)
        found = sources[name].reshape(one.shape)
        if part.endswith("_scale"):
            found = _scale(found, word, part, name)
        made[part] = found.flatten(-2) if word == "weight_blocks" else found
    return made


def _scale(found: Tensor, word: str, part: Part, name: str) -> Tensor:
    """A scale that is one: E8M0 as bytes, an outer one in FP32, what is stored as one over it turned over."""
    found = found.view(torch.uint8) if found.dtype == torch.float8_e8m0fnu else found
    number = ~(found == 0xFF) if found.dtype == torch.uint8 else found.to(torch.float32).isfinite()
    if not bool(number.all()):
        raise WrongValues(NOT_FINITE, name, "holds NaN or Inf", REPAIR)
    if part == "block_scale":
        return found
    found = found.to(torch.float32)
    return divided(1.0, found) if word in RECIPROCAL else found


def _turned(member: Member, parts: Parts) -> Parts:
    """Parts whose axes stand in the order of the source's, with the contraction axis last."""
    assert member.made.form is not None
    if layout_of(member.made.form).output_major:
        return parts
    return {part: member.output_major(value) if part in _IN_ORDER else value for part, value in parts.items()}


_IN_ORDER: tuple[Part, ...] = ("codes", "block_scale")
"""The parts that have the axes of their weight."""


def _dequantized(parts: Parts, member: Member, dtype: torch.dtype) -> Tensor:
    """One weight, a few rows at a time. Raises NotConverted."""
    assert member.made.form is not None
    codes = parts["codes"]
    rows, columns = codes.shape[0], codes.shape[1] * CODES_IN.get(member.made.form.dtype, 1)
    spec = numbers_of(member.made.form, columns)
    weight = torch.empty((rows, columns), dtype=dtype, device=codes.device)
    for at in range(0, rows, ROWS):
        band = weight[at : at + ROWS]
        band.copy_(dequantize(_rows(parts, spec, at), spec))
        if not bool(band.isfinite().all()):
            word = str(dtype).removeprefix("torch.")
            raise WrongValues(NOT_FINITE, member.name, f"holds NaN, or its scales make numbers beyond {word}", REPAIR)
    return weight


def _rows(parts: Parts, spec: Quantization, at: int) -> Parts:
    """The parts of `ROWS` rows; a scale of the whole weight is that of each."""
    band: Parts = {"codes": parts["codes"][at : at + ROWS]}
    if spec.block is not None:
        high = spec.block[0]
        scale = parts["block_scale"][at // high : -(-(at + ROWS) // high)]
        band["block_scale"] = scale if spec.scale == "e8m0" or scale.dtype != torch.uint8 else from_e8m0(scale)
    if "outer_scale" in parts:
        outer = parts["outer_scale"]
        band["outer_scale"] = outer[at : at + ROWS] if spec.scope == "per_channel" else outer
    return band
