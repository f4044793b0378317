"""What one weight occupies in a checkpoint: its codes and its scales, as dtypes and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, prod
from typing import Literal, TypeAlias

from precc.formats.decision import Decision
from precc.formats.table import FORMATS
from precc.records import record

Part: TypeAlias = Literal["codes", "block_scale", "outer_scale", "input_scale", "shape"]

_DTYPES = {"bf16": "BF16", "fp16": "F16", "fp32": "F32", "int8": "I8"}
_SCALES = {"e8m0": "U8", "e4m3": "F8_E4M3", "fp32": "F32", "pow2": "F32", "bf16": "BF16"}
_BITS = {"BF16": 16, "F16": 16, "F32": 32, "F8_E4M3": 8, "U8": 8, "I8": 8, "I32": 32, "I64": 64}


@record
class StoredPart:
    """One stored tensor of a weight: what it holds, its safetensors dtype and its shape.

    `bits` is what it occupies. Packed four-bit codes are counted at two a byte whatever the container is.
    """

    part: Part
    dtype: str
    shape: tuple[int, ...]

    @property
    def bits(self) -> int:
        return prod(self.shape) * _BITS[self.dtype]


@lru_cache(maxsize=4096)
def stored_parts(decision: Decision, shape: tuple[int, ...], contracted: int = -1) -> tuple[StoredPart, ...]:
    """This lists the tensors that hold one weight of `shape` whose contraction axis is `contracted`.

    Packed integers store their logical shape beside the codes, as compressed-tensors does.

    Leading axes (stacked experts) stay; blocks run over the output axis (rows) and the contraction axis
    (columns). Four-bit codes are two a byte along the contraction axis.
    """
    return tuple(_parts(decision, shape, contracted))


def _parts(decision: Decision, shape: tuple[int, ...], contracted: int) -> Iterator[StoredPart]:
    weight = decision.weight
    form = FORMATS[weight.format]
    if not form.is_quantized:
        yield StoredPart("codes", _DTYPES[form.name], shape)
        return
    *lead, rows, columns = _contraction_last(shape, contracted)
    if form.bits == 4:
        yield StoredPart("codes", "U8", (*lead, rows, ceil(columns / 2)))
    else:
        yield StoredPart("codes", "I8" if form.element == "INT8" else "F8_E4M3", (*lead, rows, columns))
    if weight.block is not None and weight.scale is not None:
        high, wide = weight.block
        stored_rows = ceil(rows / high) if high != 16 else rows
        yield StoredPart("block_scale", _SCALES[weight.scale], (*lead, stored_rows, ceil(columns / wide)))
    if form.outer_scale:
        yield StoredPart("outer_scale", "F32", (*lead, rows, 1) if weight.scope == "per_channel" else tuple(lead))
    if form.element == "INT4":
        yield StoredPart("shape", "I64", (2,))
    if decision.input is not None and decision.input.static:
        yield StoredPart("input_scale", "F32", tuple(lead))


@lru_cache(maxsize=4096)
def stored_bits(decision: Decision, shape: tuple[int, ...], contracted: int = -1) -> int:
    """This is what one weight occupies in a checkpoint, scales included, in bits."""
    return sum(part.bits for part in stored_parts(decision, shape, contracted))


def _contraction_last(shape: tuple[int, ...], contracted: int) -> tuple[int, ...]:
    axis = contracted % len(shape)
    return (*shape[:axis], *shape[axis + 1 :], shape[axis])
