"""The specification on a GPU against the CPU, byte for byte; needs torch and safetensors, and no test runner.

    python tests/quant/gpu_check.py [cuda]

Every format, on the golden inputs, all BF16 numbers, and random weights in three dtypes; stacked experts and another
contraction axis among them; and each way back. Exit status 1 if a byte differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

if __name__ == "__main__":
    sys.path[:1] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from quant.specs import SPECS
from quant.vectors import FOLDER, vectors
from quant.weights import differences, every_bf16, every_finite_bf16, normal, shuffled

from precc.formats import Quantization
from precc.quant import dequantize, quantize
from precc.quant.layouts import swizzled


def main(device: str) -> int:
    """This prints one line a format and returns how many comparisons differed."""
    say(f"torch {torch.__version__}, {torch.cuda.get_device_name() if device == 'cuda' else device}")
    failed = 0
    for name, spec in SPECS.items():
        problems = [f"{where}: {problem}" for where, weight in weights() for problem in check(weight, spec, device)]
        failed += len(problems)
        say(f"{name:24} {'same bytes' if not problems else '; '.join(problems[:5])}")
    say(f"mxfp8 on {device}: {rate(device):.1f} GB/s of BF16 input, by the reference")
    return failed


def say(line: str) -> None:
    """One line for whoever runs this."""
    sys.stdout.write(f"{line}\n")


def weights() -> Iterator[tuple[str, Tensor]]:
    """Each with what it is."""
    for path in sorted(FOLDER.glob("*.safetensors")):
        if path.stem != "inputs":
            yield from ((f"{path.stem} {one.category}", one.weight[: _high(one.weight)]) for one in vectors(path.stem))
    yield "every BF16 number", every_finite_bf16()
    yield "every BF16 number, shuffled", shuffled(every_finite_bf16())
    yield "every BF16 number, NaN and Inf too", every_bf16().view(256, 256)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        yield f"normal {dtype}", normal(1024, 1024, dtype=dtype)
        yield f"wide {dtype}", normal(2, 256, 512, dtype=dtype, spread=8)


def check(weight: Tensor, spec: Quantization, device: str) -> Iterator[str]:
    """What differs, on the way there, in the swizzled layout, and on the way back; along both axes."""
    if spec.format != "fp8_block":  # the only blocks that may be partial
        weight = weight[..., : weight.shape[-1] // 128 * 128]
    finite = bool(weight.isfinite().all())
    for axis in (-1, -2) if weight.shape[-2] % 128 == 0 else (-1,):
        wanted = quantize(weight, spec, axis=axis, finite=finite)
        there = quantize(weight.to(device), spec, axis=axis, finite=finite)
        found = {part: value.cpu() for part, value in there.items()}
        yield from differences(found, wanted)
        back, expected = one_nan(dequantize(there, spec).cpu()), one_nan(dequantize(wanted, spec))
        yield from differences({"back": back}, {"back": expected})
        if "block_scale" in wanted and wanted["block_scale"].element_size() == 1:
            tiles = [swizzled(parts["block_scale"]).cpu() for parts in (there, wanted)]
            yield from differences({"tiles": tiles[0]}, {"tiles": tiles[1]})


def one_nan(values: Tensor) -> Tensor:
    """The same with every NaN alike: which of its bits are set is the hardware's business."""
    return torch.where(values.isnan(), torch.nan, values)


def rate(device: str) -> float:
    """For one 4096 × 4096 weight."""
    weight = normal(4096, 4096).to(device)
    seconds = []
    for _ in range(5):
        start = perf_counter()
        quantize(weight, SPECS["mxfp8"])["codes"][0, 0].cpu()
        seconds.append(perf_counter() - start)
    return weight.nbytes / min(seconds) / 1e9


def _high(weight: Tensor) -> int:
    """As many rows as 16×16 blocks cover."""
    return weight.shape[0] // 16 * 16


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1] if sys.argv[1:] else "cuda"), 1))
