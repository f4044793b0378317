"""NaN and Inf in what is written as it is: looked for in the memory that holds it anyway.

A quantizer refuses them by itself, and so does whoever dequantizes; what nobody computes with is looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import torch
from torch import Tensor

from precc.quant.checks import NotFinite
from precc_converter.conversion.findings import NOT_FINITE, WrongValues
from precc_converter.conversion.numbers import Tensors
from precc_converter.conversion.units import Member, Unit, named_parts

_WIDE = (torch.float32, torch.bfloat16, torch.float16)
_NARROW = {torch.float8_e4m3fn: (0x7F, 0x7E), torch.float8_e8m0fnu: (0xFF, 0xFE)}
"""Floating dtypes of one byte → the bits of a magnitude, and the largest that is a number."""

_REPAIR = "whatever computes with it answers with NaN: repair the source"


class Kept:
    """The values of one stored tensor as they go by, in parts: how many are NaN or Inf, and where the first stands."""

    def __init__(self, dtype: torch.dtype, shape: Sequence[int]) -> None:
        self._narrow = _NARROW.get(dtype)
        self._looked_at = dtype in _WIDE or self._narrow is not None
        self._dtype = dtype
        self._shape = shape
        self._seen = 0
        self._count = 0
        self._first: tuple[int, float] | None = None

    def see_bytes(self, data: memoryview) -> None:
        """This looks at the next bytes of it: whole values, and at least one."""
        if self._looked_at:
            self.see(torch.frombuffer(data, dtype=self._dtype))

    def see(self, values: Tensor) -> None:
        """This looks at the next values of it, in row-major order; without a mask as large as they are."""
        if self._looked_at and values.numel() and not self._are_numbers(values):
            wrong = self._wrong(values)
            if self._first is None:
                at = int(wrong.to(torch.uint8).argmax())
                self._first = (self._seen + at, float(values[at]))
            self._count += int(wrong.sum())
        self._seen += values.numel()

    def check(self, name: str) -> None:
        """Raises NotConverted with P602 if one was seen that is no number."""
        if self._first is not None:
            at, value = self._first
            found = NotFinite(self._count, _position(at, self._shape), value)
            raise WrongValues(NOT_FINITE, name, f"holds {found.described}", _REPAIR)

    def _are_numbers(self, values: Tensor) -> bool:
        if self._narrow is None:
            least, most = torch.aminmax(values)
            return bool(least.isfinite() & most.isfinite())
        bits, largest = self._narrow
        return int((values.view(torch.uint8) & bits).amax()) <= largest

    def _wrong(self, values: Tensor) -> Tensor:
        if self._narrow is None:
            return ~values.isfinite()
        bits, largest = self._narrow
        return (values.view(torch.uint8) & bits) > largest


def check_kept(unit: Unit, sources: Tensors) -> None:
    """This looks at the source tensors of a unit's members that are written without being computed with.

    Raises NotConverted with P602 for the first that holds NaN or Inf.
    """
    for member in filter(_is_kept, unit.members):
        for name, values in _floating(member, sources):
            kept = Kept(values.dtype, values.shape)
            kept.see(values.reshape(-1))
            kept.check(name)


def _floating(member: Member, sources: Tensors) -> Iterator[tuple[str, Tensor]]:
    """What is read for a member, by name; block scales that are bytes as the E8M0 that they are."""
    scales = {name for name, part in named_parts(member) if part == "block_scale"} if member.made.form else ()
    for name, _ in member.sources:
        values = sources[name]
        is_e8m0 = values.dtype == torch.uint8 and name in scales
        yield name, values.view(torch.float8_e8m0fnu) if is_e8m0 else values


def _is_kept(member: Member) -> bool:
    """Whether neither a quantizer nor a dequantizer looks at every number of it."""
    made = member.made
    return made.action in ("copy", "cast", "stack") or (made.stack is not None and not made.weight.is_quantized)


def _position(at: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The place of an element by its number in row-major order."""
    return tuple(at // prod(shape[axis + 1 :]) % size for axis, size in enumerate(shape))
