"""The fast path of a CPU: bands of rows over threads, each through a compiled kernel; the bytes of `reference`.

It needs numba. A band is made contiguous, and FP16 made FP32, one at a time, so that what is allocated beside the
outputs stays small. Threads are as many as torch would use (`torch.set_num_threads`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor

from precc.formats import Quantization
from precc.quant.elements import FP32_MAX
from precc.quant.reference import INTEGER_MAX, Parts
from precc.quant.scales import channel_scale, divided, fp8_encode, nvfp4_encode, token_factor

Array: TypeAlias = Any
"""A numpy array that shares a tensor's memory."""
Fill: TypeAlias = Callable[[Array, int, int, int], int]
"""Fills the outputs of rows [start, stop) of one expert from their source; returns the largest magnitude's bits."""

LEAST_OF_A_BAND, _MOST_OF_A_BAND = 1 << 17, 1 << 20
"""Elements: fewer and the calls cost more than the work, more and threads wait for the last one."""


@dataclass(frozen=True, slots=True)
class Filling:
    """The outputs of one weight, how rows of them are filled, and how many rows must stay together."""

    parts: Parts
    fill: Fill
    together: int = 1


@cache
def is_installed() -> bool:
    """Whether numba is there to compile the kernels."""
    return find_spec("numba") is not None


def accepts(matrix: Tensor) -> bool:
    """Whether this path can take a weight: on a CPU, elements in pairs."""
    return matrix.device.type == "cpu" and matrix.shape[-1] % 2 == 0 and is_installed()


def quantize(matrix: Tensor, spec: Quantization, amax: Tensor | None) -> Parts | None:
    """The parts that `reference.QUANTIZERS` gives; None where the weight holds NaN or Inf."""
    filling = FILLINGS[spec.format](matrix, spec, amax)
    return filling.parts if _is_finite(matrix, filling.fill, filling.together) else None


def largest(matrix: Tensor) -> Tensor | None:
    """The largest magnitude of each row, FP32 [..., rows, 1]; None where one is not finite."""
    tops = torch.empty((*matrix.shape[:-1], 1), dtype=torch.float32)
    out = _by_expert(tops.view(torch.int32))

    def fill(source: Array, expert: int, start: int, stop: int) -> int:
        return int(_kernels().largest(source, matrix.shape[-1], _flat(out[expert, start:stop])))

    return tops if _is_finite(matrix, fill, 1) else None


def _mxfp8(matrix: Tensor, spec: Quantization, amax: Tensor | None) -> Filling:
    parts, codes = _with_codes(matrix, torch.float8_e4m3fn)
    scales = parts["block_scale"] = _empty(matrix, torch.uint8, 32)
    out = _by_expert(scales)

    def fill(source: Array, expert: int, start: int, stop: int) -> int:
        return int(_kernels().mxfp8(source, _pairs(codes, expert, start, stop), out[expert, start:stop].numpy()))

    return Filling(parts, fill)


def _nvfp4(matrix: Tensor, spec: Quantization, amax: Tensor | None) -> Filling:
    assert amax is not None
    assert spec.block is not None
    adaptive = spec.four_over_six
    encode = nvfp4_encode(amax) if adaptive is None else nvfp4_encode(amax, float(adaptive.maximum))
    parts, codes = _with_codes(matrix, torch.uint8, 2)
    scales = _empty(matrix, torch.uint8, 16)
    parts |= {"block_scale": scales.view(torch.float8_e4m3fn), "outer_scale": divided(1.0, encode)}
    encodes, tops, out, high = _by_row(encode, matrix), _by_row(amax, matrix), _by_expert(scales), spec.block[0]

    def fill(source: Array, expert: int, start: int, stop: int) -> int:
        rows = slice(start, stop)
        outputs = high, _flat(codes[expert, rows]), out[expert, rows].numpy()
        if adaptive is None:
            return int(_kernels().nvfp4(source, _flat(encodes[expert, rows]), *outputs))
        given = _flat(encodes[expert, rows]), _flat(tops[expert, rows])
        full = _float32(6.0 * adaptive.maximum)
        return int(_kernels().four_over_six(source, *given, full, adaptive.error == "mse", *outputs))

    return Filling(parts, fill, high)


def _fp8_block(matrix: Tensor, spec: Quantization, amax: Tensor | None) -> Filling:
    assert spec.block is not None
    high, wide = spec.block
    parts, codes = _with_codes(matrix, torch.float8_e4m3fn)
    *lead, rows, columns = matrix.shape
    scales = parts["block_scale"] = torch.empty((*lead, -(-rows // high), -(-columns // wide)), dtype=torch.float32)
    most, out = _float32(torch.finfo(matrix.dtype).max), _by_expert(scales)

    def fill(source: Array, expert: int, start: int, stop: int) -> int:
        blocks = out[expert, start // high : -(-stop // high)].numpy()
        given = columns, (high, wide), most, spec.scale == "pow2"
        return int(_kernels().fp8_blocks(source, *given, _pairs(codes, expert, start, stop), blocks))

    return Filling(parts, fill, high)


def _fp8(matrix: Tensor, spec: Quantization, amax: Tensor | None) -> Filling:
    assert amax is not None
    factor, scale = _FP8_SCALES[spec.scope or "per_tensor"](amax, matrix.dtype)
    parts, codes = _with_codes(matrix, torch.float8_e4m3fn)
    parts["outer_scale"] = scale
    factors, divides = _by_row(factor, matrix), spec.scope == "per_channel"

    def fill(source: Array, expert: int, start: int, stop: int) -> int:
        given = _flat(factors[expert, start:stop]), divides
        return int(_kernels().fp8_rows(source, *given, _pairs(codes, expert, start, stop)))

    return Filling(parts, fill)


def _integers(matrix: Tensor, spec: Quantization, amax: Tensor | None) -> Filling:
    assert spec.block is not None
    group, most, packs = spec.block[1], INTEGER_MAX[spec.format], spec.format == "int4"
    parts, codes = _with_codes(matrix, torch.int32, 8) if packs else _with_codes(matrix, torch.int8)
    scales = parts["block_scale"] = _empty(matrix, torch.bfloat16, group)
    if packs:
        parts["shape"] = torch.tensor(matrix.shape[-2:], dtype=torch.int64)
    out = _by_expert(scales.view(torch.int16))

    def fill(source: Array, expert: int, start: int, stop: int) -> int:
        stored = _flat(codes[expert, start:stop].view(torch.uint8 if packs else torch.int16))
        return int(_kernels().integers(source, most, group, stored, out[expert, start:stop].numpy()))

    return Filling(parts, fill)


FILLINGS: dict[str, Callable[[Tensor, Quantization, Tensor | None], Filling]] = {
    "mxfp8": _mxfp8,
    "nvfp4": _nvfp4,
    "fp8_block": _fp8_block,
    "fp8": _fp8,
    "int4": _integers,
    "int8": _integers,
}


def _of_tensor(amax: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    encode = fp8_encode(amax, FP32_MAX)
    return encode, divided(1.0, encode)


def _of_channels(amax: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    scale = channel_scale(amax, dtype)
    return scale, scale


def _of_tokens(amax: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    scale = divided(amax, 448.0)
    return token_factor(scale), scale


_FP8_SCALES = {"per_tensor": _of_tensor, "per_channel": _of_channels, "per_token": _of_tokens}
"""By scope: what an element is multiplied with (divided by, for channels), and what is stored."""


def _is_finite(matrix: Tensor, fill: Fill, together: int) -> bool:
    experts, workers = _by_expert(matrix), torch.get_num_threads()

    def run(band: tuple[int, int, int]) -> int:
        expert, start, stop = band
        return fill(source_of(experts[expert, start:stop]), expert, start, stop)

    bands = list(_bands(experts, together, workers))
    return max(_shared(run, bands, min(workers, len(bands)))) < int(_kernels().FIRST_NOT_FINITE)


def _shared(run: Callable[[tuple[int, int, int]], int], bands: list[tuple[int, int, int]], workers: int) -> list[int]:
    """The result of each band, in any order.

    The caller is one of the workers: it need not wait until the others are awake, and never does worse than alone.
    """
    left = iter(bands)

    def work() -> list[int]:
        return [run(band) for band in left]

    helping = [_pool(workers - 1, os.getpid()).submit(work) for _ in range(workers - 1)]
    try:
        found = work()
    finally:
        late = [each for each in helping if not each.cancel()]
    return found + [top for each in late for top in each.result()]


def _bands(experts: Tensor, together: int, workers: int) -> Iterator[tuple[int, int, int]]:
    count, rows, columns = experts.shape
    elements = min(max(experts.numel() // (2 * workers), LEAST_OF_A_BAND), _MOST_OF_A_BAND)
    step = max(elements // columns // together, 1) * together
    for expert in range(count):
        for start in range(0, rows, step):
            yield expert, start, min(start + step, rows)


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Threads that stay, of this process: a fork inherits none."""
    return ThreadPoolExecutor(workers, thread_name_prefix="precc-quant")


def source_of(band: Tensor) -> Array:
    """The bits of a band: int16 for BF16, int32 for the others as FP32."""
    if band.dtype == torch.bfloat16:
        return _flat(band.contiguous().view(torch.int16))
    return _flat(band.to(torch.float32).contiguous().view(torch.int32))


def _with_codes(matrix: Tensor, dtype: torch.dtype, elements: int = 1) -> tuple[Parts, Tensor]:
    """New codes, and the same memory as [experts, rows, …]."""
    codes = _empty(matrix, dtype, elements)
    return {"codes": codes}, _by_expert(codes)


def _empty(matrix: Tensor, dtype: torch.dtype, elements: int) -> Tensor:
    return torch.empty((*matrix.shape[:-1], matrix.shape[-1] // elements), dtype=dtype)


def _by_expert(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, *tensor.shape[-2:])


def _by_row(values: Tensor, matrix: Tensor) -> Tensor:
    """One value a matrix, or a row, as one a row: [experts, rows]."""
    each = values if values.shape == (*matrix.shape[:-1], 1) else values[..., None, None]
    return each.expand(*matrix.shape[:-1], 1).reshape(-1, matrix.shape[-2])


def _pairs(codes: Tensor, expert: int, start: int, stop: int) -> Array:
    return _flat(codes[expert, start:stop].view(torch.int16))


def _flat(tensor: Tensor) -> Array:
    return tensor.reshape(-1).numpy()


def _float32(value: float) -> Array:
    return torch.tensor(value, dtype=torch.float32).numpy()[()]


@cache
def _kernels() -> ModuleType:
    from precc.quant import kernels

    return kernels
