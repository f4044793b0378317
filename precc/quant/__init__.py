"""Byte-exact quantizers: the same stored parts from the trainer, the converter and the rollout engine.

`reference` is the specification, in plain PyTorch for any device.
"""

from precc.quant.checks import NotFinite
from precc.quant.dequantizing import dequantize
from precc.quant.fake import FakeQuantized, fake_quantize
from precc.quant.in_place import round_in_place, roundings
from precc.quant.quantizing import amax, quantize

__all__ = [
    "FakeQuantized",
    "NotFinite",
    "amax",
    "dequantize",
    "fake_quantize",
    "quantize",
    "round_in_place",
    "roundings",
]
