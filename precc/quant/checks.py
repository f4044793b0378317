"""What a quantizer refuses, before anything is written."""

from __future__ import annotations

import torch
from torch import Tensor

from precc.formats import FORMATS, Quantization

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


def require_finite(weight: Tensor) -> None:
    """This raises NotFinite if any element is NaN or Inf."""
    wrong = ~weight.isfinite()
    count = int(wrong.sum())
    if count:
        position = tuple(wrong.nonzero()[0].tolist())
        raise NotFinite(count, position, float(weight[position]))


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


def require_format(spec: Quantization, known: tuple[str, ...]) -> None:
    """This raises ValueError for a format that has no quantizer, or that misses its block."""
    if spec.format not in known:
        raise ValueError(f"{spec.format} has no quantizer: there are {', '.join(known)}")
    if spec.block is None and FORMATS[spec.format].weight_block is not None:
        raise ValueError(f"{spec.format} is stored in blocks, and this decision names none")
