"""The quantizers of `reference` as loops that LLVM turns into vector instructions, through numba.

A kernel fills rows of its outputs from a source (see `lanes`) and returns the largest magnitude that it met, as the
bits of an FP32: from 0x7F800000 on the source was not finite, and nothing that was written counts. All arithmetic is
FP32, each operation rounded and none contracted; integers are int32. Kernels hold no lock and share nothing, so any
number of threads may run them. Machine code is cached beside the modules, or in numba's cache directory.
"""

from precc.quant.kernels.four_over_six import four_over_six
from precc.quant.kernels.fp8 import fp8_blocks, fp8_rows, mxfp8
from precc.quant.kernels.integers import integers
from precc.quant.kernels.lanes import FIRST_NOT_FINITE
from precc.quant.kernels.nvfp4 import nvfp4
from precc.quant.kernels.peaks import largest

__all__ = ["FIRST_NOT_FINITE", "four_over_six", "fp8_blocks", "fp8_rows", "integers", "largest", "mxfp8", "nvfp4"]
