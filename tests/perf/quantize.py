"""Quantizers in GB/s of BF16 that they read, beside a plain copy of the same bytes and what else runs on a CPU.

All of one table take turns in one process, so a slow moment of the machine meets each. Peers that are not installed
are left out, and named.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import torch
from rich.console import Group
from rich.table import Table
from torch import Tensor

from precc.formats import Quantization
from precc.quant import amax, fast, quantize

Run: TypeAlias = Callable[[], object]

SIZES = ((4096, 4096), (2048, 768))
MXFP8 = Quantization("mxfp8", (1, 32), "e8m0")
NVFP4 = Quantization("nvfp4", (1, 16), "e4m3", "per_tensor")
COPY = "copy into memory that is there"
OTHERS = {
    "FP8 128×128": Quantization("fp8_block", (128, 128), "pow2"),
    "FP8 per tensor": Quantization("fp8", scope="per_tensor"),
    "NVFP4 per token": Quantization("nvfp4", (1, 16), "e4m3", "per_token"),
    "NVFP4 16×16": Quantization("nvfp4", (16, 16), "e4m3", "per_tensor"),
    "INT4 group 32": Quantization("int4", (1, 32), "bf16"),
}


def measure(times: int) -> Group:
    """One table of peers a size, one of the other formats, and one of what a call is made of."""
    weights = [(0.02 * torch.randn(size)).to(torch.bfloat16) for size in SIZES]
    missing: list[str] = []
    tables = [_peers(weight, times, missing) for weight in weights]
    tables += [_formats(weights[0], times), _limits(weights[0], times)]
    return Group(*tables, f"not installed: {', '.join(sorted(set(missing)))}\n" if missing else "")


def _peers(weight: Tensor, times: int, missing: list[str]) -> Table:
    runs = {("copy", COPY): _copy(weight), ("copy", "copy into new memory"): weight.clone}
    for source in (_precc, _torchao, _modelopt, _compressed_tensors):
        try:
            runs |= {(form, name): run for form, name, run in source(weight)}
        except ImportError as problem:
            missing.append(f"{source.__name__.strip('_')} ({problem})")
    found = _timed(runs, times)
    return _table(weight, times, {f"{form}: {name}": seconds for (form, name), seconds in found.items()})


def _formats(weight: Tensor, times: int) -> Table:
    runs = {COPY: _copy(weight)} | {name: _bound(quantize, weight, spec) for name, spec in OTHERS.items()}
    return _table(weight, times, _timed(runs, times))


def _limits(weight: Tensor, times: int) -> Table:
    """The same calls with data that stays in a core's cache, and the parts of one call."""
    small = weight[:32].contiguous()
    many = weight.numel() // small.numel()
    runs: dict[str, Run] = {
        COPY: _copy(weight),
        "copy into new memory": weight.clone,
        "amax alone (NVFP4 reads twice)": _bound(amax, weight, NVFP4),
        "NVFP4 with the amax given": lambda: quantize(weight, NVFP4, amax=torch.tensor(0.1)),
        "MXFP8, one thread": _on_one_thread(_bound(quantize, weight, MXFP8)),
        "MXFP8, one thread, in cache": _on_one_thread(_repeated(_filled(small, MXFP8), many)),
        "NVFP4, one thread": _on_one_thread(_bound(quantize, weight, NVFP4)),
        "NVFP4, one thread, in cache": _on_one_thread(_repeated(_filled(small, NVFP4), many)),
    }
    return _table(weight, times, _timed(runs, times))


def _filled(weight: Tensor, spec: Quantization) -> Run:
    """The kernel alone, into outputs that are there."""
    filling = fast.FILLINGS[spec.format](weight, spec, torch.tensor(0.1) if spec.scope else None)
    source, rows = fast.source_of(weight), weight.shape[0]
    return lambda: filling.fill(source, 0, 0, rows)


def _precc(weight: Tensor) -> Iterator[tuple[str, str, Run]]:
    yield "MXFP8", "precc", _bound(quantize, weight, MXFP8)
    yield "NVFP4", "precc", _bound(quantize, weight, NVFP4)


def _torchao(weight: Tensor) -> Iterator[tuple[str, str, Run]]:
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

    def mxfp8(given: Tensor) -> object:
        return to_mx(given, torch.float8_e4m3fn, 32, ScaleCalculationMode.RCEIL)

    def nvfp4(given: Tensor) -> object:
        return nvfp4_quantize(given, 16, per_tensor_amax_to_scale(given.abs().max()))

    for form, function in (("MXFP8", mxfp8), ("NVFP4", nvfp4)):
        yield form, "torchao eager", _bound(function, weight)
        yield form, "torchao compiled", _bound(torch.compile(function, dynamic=False), weight)


def _modelopt(weight: Tensor) -> Iterator[tuple[str, str, Run]]:
    sys.modules.setdefault("transformer_engine", None)  # type: ignore[arg-type]
    from modelopt.torch.quantization.qtensor import MXFP8QTensor, NVFP4QTensor

    # a plugin of it takes an installed TransformerEngine without its compiled part for an error
    yield "MXFP8", "ModelOpt", _bound(MXFP8QTensor.quantize, weight)
    yield "NVFP4", "ModelOpt", _bound(NVFP4QTensor.quantize, weight, 16)


def _compressed_tensors(weight: Tensor) -> Iterator[tuple[str, str, Run]]:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    def compress(preset: str, compressor: str, group: int) -> object:
        scheme = preset_name_to_scheme(preset, ["Linear"])
        low, high = weight.view(weight.shape[0], -1, group).aminmax(dim=-1)
        outer = generate_gparam(weight.min(), weight.max()) if preset == "NVFP4" else None
        scale, zero = calculate_qparams(low, high, scheme.weights, global_scale=outer)
        parts = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero}
        parts |= {} if outer is None else {"weight_global_scale": outer}
        return BaseCompressor.get_value_from_registry(compressor).compress(parts, scheme)

    yield "MXFP8", "compressed-tensors", _bound(compress, "MXFP8", "mxfp8-quantized", 32)
    yield "NVFP4", "compressed-tensors", _bound(compress, "NVFP4", "nvfp4-pack-quantized", 16)


def _timed(runs: dict[Any, Run], times: int) -> dict[Any, float]:
    """The median seconds of each, all in turn, after two runs that compile.

    In each turn the first call is not counted: threads of the one before may still spin, waiting for more of its work.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for run in runs.values():
            run(), run()
        seconds: dict[Any, list[float]] = {name: [] for name in runs}
        for _ in range(times):
            for name, run in runs.items():
                run()
                start = perf_counter()
                run()
                seconds[name].append(perf_counter() - start)
    return {name: median(found) for name, found in seconds.items()}


def _table(weight: Tensor, times: int, seconds: dict[str, float]) -> Table:
    size = " × ".join(map(str, weight.shape))
    title = f"{size} BF16, {torch.get_num_threads()} threads, median of {times}"
    table = Table("", "GB/s", "of the copy", title=title, title_justify="left")
    copy = next(found for name, found in seconds.items() if name.endswith(COPY))
    for name, found in seconds.items():
        table.add_row(name, f"{weight.nbytes / found / 1e9:.2f}", f"{copy / found:.2f}")
    return table


def _bound(function: Callable[..., object], *arguments: object) -> Run:
    return lambda: function(*arguments)


def _copy(weight: Tensor) -> Run:
    return _bound(torch.empty_like(weight).copy_, weight)


def _repeated(run: Run, times: int) -> Run:
    def again() -> None:
        for _ in range(times):
            run()

    return again


def _on_one_thread(run: Run) -> Run:
    def alone() -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        run()
        torch.set_num_threads(threads)

    return alone
