"""The decisions that the tests of the quantizers run through, by name."""

from __future__ import annotations

from precc.formats import FourOverSix, Quantization

SPECS = {
    "mxfp8": Quantization("mxfp8", (1, 32), "e8m0"),
    "nvfp4_per_tensor": Quantization("nvfp4", (1, 16), "e4m3", "per_tensor"),
    "nvfp4_per_token": Quantization("nvfp4", (1, 16), "e4m3", "per_token"),
    "nvfp4_2d": Quantization("nvfp4", (16, 16), "e4m3", "per_tensor"),
    "nvfp4_4over6_mae_256": Quantization("nvfp4", (1, 16), "e4m3", "per_tensor", FourOverSix("mae", 256)),
    "nvfp4_4over6_mse_448": Quantization("nvfp4", (1, 16), "e4m3", "per_tensor", FourOverSix("mse", 448)),
    "nvfp4_4over6_per_token": Quantization("nvfp4", (1, 16), "e4m3", "per_token", FourOverSix("mse", 256)),
    "nvfp4_4over6_2d": Quantization("nvfp4", (16, 16), "e4m3", "per_tensor", FourOverSix("mae", 448)),
    "fp8_block_fp32": Quantization("fp8_block", (128, 128), "fp32"),
    "fp8_block_pow2": Quantization("fp8_block", (128, 128), "pow2"),
    "fp8_tiles_pow2": Quantization("fp8_block", (1, 128), "pow2"),
    "fp8_tensor": Quantization("fp8", scope="per_tensor"),
    "fp8_channel": Quantization("fp8", scope="per_channel"),
    "fp8_token": Quantization("fp8", scope="per_token"),
    "int4_g32": Quantization("int4", (1, 32), "bf16"),
    "int4_g128": Quantization("int4", (1, 128), "bf16"),
    "int8_g64": Quantization("int8", (1, 64), "bf16"),
}
