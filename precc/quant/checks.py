"""What a quantizer refuses, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from precc.formats import Quantization
from precc.formats.table import Block

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class NotFinite(ValueError):
    """A weight that holds NaN or Inf: `count` of them, the first at `position` of the tensor as it was given."""

    def __init__(self, count: int, position: tuple[int, ...], value: float) -> None:
        super().__init__(
            f"{count} value{'s' if count != 1 else ''} not finite, the first {value} at {list(position)}; "
            "NaN and Inf have no quantized form: repair the source"
        )
        self.count = count
        self.position = position
        self.value = value

    @property
    def described(self) -> str:
        """`2 values that are NaN or Inf, the first inf at [3, 232]`."""
        many = "value that is" if self.count == 1 else "values that are"
        return f"{self.count:,} {many} NaN or Inf, the first {self.value} at {list(self.position)}"


def require_finite(weight: Tensor) -> None:
    """This raises NotFinite if any element is NaN or Inf."""
    wrong = ~weight.isfinite()
    count = int(wrong.sum())
    if count:
        position = tuple(wrong.nonzero()[0].tolist())
        raise NotFinite(count, position, float(weight[position]))


def require_weight(weight: object) -> None:
    """This raises TypeError for what is no tensor, and ValueError for a tensor without values."""
    if not isinstance(weight, Tensor):
        raise TypeError(f"a weight is a torch.Tensor, not a {type(weight).__name__}")
    if weight.is_meta:
        raise ValueError(f"a weight of shape {list(weight.shape)} on the meta device holds no values: load it first")


def require_amax(amax: object, shape: Sequence[int]) -> None:
    """This raises TypeError for what is no tensor, and ValueError for another dtype or shape than an amax has.

    `shape` is that of one value for each outer scale, to which an amax is broadcast.
    """
    if not isinstance(amax, Tensor):
        raise TypeError(f"an amax is a torch.Tensor, not a {type(amax).__name__}: take that of `precc.quant.amax`")
    if not amax.is_floating_point() or not _broadcasts(amax.shape, shape):
        found = f"{str(amax.dtype).removeprefix('torch.')} {list(amax.shape)}"
        raise ValueError(f"an amax of {found} does not fit: this weight has outer scales of {list(shape)}, in FP32")


def require_magnitudes(amax: Tensor, weight: Tensor) -> None:
    """This raises ValueError for an amax that is no largest magnitude, and NotFinite if that is the weight's fault."""
    if not bool((amax.isfinite() & (amax >= 0)).all()):
        require_finite(weight)
        raise ValueError("an amax is a largest magnitude: this one holds values below zero, NaN or Inf")


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    return len(shape) <= len(to) and all(
        one in (1, other) for one, other in zip(reversed(shape), reversed(to), strict=False)
    )


def require_fit(weight: Tensor, spec: Quantization) -> None:
    """This raises ValueError where a weight, contraction axis last, does not divide into the blocks of a decision.

    Blocks of `fp8_block` may be partial at the edges; those of the other formats may not.
    """
    if weight.dtype not in _DTYPES:
        raise ValueError(f"a weight of {weight.dtype} cannot be quantized: BF16, FP16 or FP32 is read")
    if weight.ndim < 2 or not weight.numel():
        raise ValueError(f"a weight of shape {list(weight.shape)} cannot be quantized: rows and columns are needed")
    if spec.format == "fp8_block" or spec.block is None:
        return
    for size, side, name in zip(weight.shape[-2:], spec.block, ("rows", "columns"), strict=True):
        if size % side:
            raise ValueError(
                f"{size} {name} do not divide into {spec.format} blocks of {side}: keep this tensor in another format"
            )


def require_scales(which: str, scale: Tensor, values: Tensor, spec: Quantization, block: Block) -> None:
    """This raises ValueError for scales that are not one for each block of [..., rows, columns]."""
    *lead, rows, columns = values.shape
    shape = (*lead, -(-rows // block[0]), -(-columns // block[1]))
    if scale.shape != shape:
        raise unfit(which, scale, values, spec, shape)


def unfit(which: str, scale: Tensor, values: Tensor, spec: Quantization, shape: Sequence[int]) -> ValueError:
    """The refusal of scales of another shape than a decision's."""
    return ValueError(
        f"`{spec}` has {which} scales of {list(shape)} for a weight of {list(values.shape)}; these are "
        f"{list(scale.shape)}: dequantize with the decision that these parts were made for"
    )


def require_stored(stored: object, weight: torch.dtype | None = None) -> None:
    """This raises ValueError for a dtype that no trainer hands weights over in, and where an FP32 weight names none."""
    if stored is None and weight is torch.float32:
        raise ValueError(
            "an FP32 weight is served from what it is rounded to when it is handed over: say that dtype, "
            "`stored=torch.bfloat16`"
        )
    if stored not in (None, torch.bfloat16, torch.float16):
        raise ValueError(f"a weight is handed over in torch.bfloat16 or torch.float16, not in {stored}")
