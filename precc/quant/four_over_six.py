"""NVFP4 four-over-six: each block tries to end at 4 and at 6, and keeps the one that errs less.

As TransformerEngine computes it. The E4M3 maximum (256 or 448) is that of the outer scale; a block scale may still
reach 448.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from precc.formats import FourOverSix
from precc.quant.blocks import spread
from precc.quant.elements import E2M1_MAX, E4M3_MAX, FP32_MAX, from_e2m1, from_e4m3, to_e2m1, to_e4m3
from precc.quant.scales import divided

Distance: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""How far what a block stores (code · block scale) is from its elements; both [..., rows, columns]."""

_TO_FOUR, _TO_SIX = 1.5, 1.0
"""What a block scale is multiplied by for the largest element to become 4, or 6."""
_COLUMNS = 16


def four_over_six(
    weight: Tensor, amax: Tensor, encode: Tensor, error: str, distance: Distance, high: int
) -> tuple[Tensor, Tensor]:
    """E2M1 codes, one a byte, and E4M3 scale bytes, one for each row and 16 columns.

    `amax` has a value for each of those too, `encode` is S, `error` is `mae` or `mse`; `high` rows choose together.
    """
    base = divided(amax, E2M1_MAX) * encode
    decode = divided(1.0, encode)
    four, six = (_candidate(weight, (base * target).clamp_max(E4M3_MAX), decode) for target in (_TO_FOUR, _TO_SIX))
    error_of_four, error_of_six = (_error(distance(_stored(*each), weight), error, high) for each in (four, six))
    is_four = error_of_four < error_of_six
    codes = torch.where(spread(is_four, (1, _COLUMNS), *weight.shape[-2:]), four[0], six[0])
    return codes, torch.where(is_four, four[1], six[1])


def exact(amax: Tensor, adaptive: FourOverSix) -> Distance:
    """TransformerEngine's default error: code · scale · amax / (6 · maximum) against the element."""

    def distance(stored: Tensor, weight: Tensor) -> Tensor:
        return divided(stored * amax, E2M1_MAX * adaptive.maximum) - weight.to(torch.float32)

    return distance


def fast(encode: Tensor) -> Distance:
    """The error under NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH=1, in the scaled domain."""
    return lambda stored, weight: stored - weight.to(torch.float32) * encode


def _candidate(weight: Tensor, scale: Tensor, decode: Tensor) -> tuple[Tensor, Tensor]:
    """The codes and the scale bytes of one choice."""
    stored = to_e4m3(scale)
    factor = divided(1.0, from_e4m3(stored) * decode).clamp_max(FP32_MAX)
    return to_e2m1(weight.to(torch.float32) * spread(factor, (1, _COLUMNS), *weight.shape[-2:])), stored


def _stored(codes: Tensor, scale: Tensor) -> Tensor:
    return from_e2m1(codes) * spread(from_e4m3(scale), (1, _COLUMNS), *codes.shape[-2:])


def _error(distance: Tensor, error: str, high: int) -> Tensor:
    """The error of each block, [..., rows, columns / 16], in the order of additions of the source."""
    each = distance * distance if error == "mse" else distance.abs()
    each = each.view(*each.shape[:-1], -1, _COLUMNS)
    total = torch.zeros_like(each[..., 0])
    for column in range(_COLUMNS):
        total = total + each[..., column]
    return total if high == 1 else _over_rows(total, high)


def _over_rows(errors: Tensor, high: int) -> Tensor:
    """Errors of `high` rows added as a tree, 8 rows apart, then 4, 2 and 1; each row gets the sum."""
    *lead, rows, columns = errors.shape
    opened = errors.view(*lead, rows // high, high, columns)
    apart = high // 2
    while apart:
        opened = opened[..., :apart, :] + opened[..., apart : 2 * apart, :]
        apart //= 2
    return opened.expand(*lead, rows // high, high, columns).reshape(errors.shape)
