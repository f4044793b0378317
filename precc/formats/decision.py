"""What is decided for one tensor: the two operands of its matrix multiplication and its backward pass."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, Literal, TypeAlias

from precc.formats.table import FORMATS, Block, Scope
from precc.records import record

Backward: TypeAlias = Literal["native", "high_precision", "dequantized"]
Train: TypeAlias = Literal["bf16", "fake_quant"]


@record
class FourOverSix:
    """Adaptive NVFP4 block scaling: the error it minimises and the E4M3 maximum it scales to."""

    error: Literal["mae", "mse"] = "mae"
    maximum: Literal[256, 448] = 256


@record
class Quantization:
    """How one operand is stored or multiplied.

    `block` is (rows, columns) with columns along the contraction axis; `scale` the type of the block scale (see
    `Format.block_scale`); `scope` that of the outer, or only, FP32 scale; `static` an input scale stored in the
    checkpoint.
    """

    format: str
    block: Block | None = None
    scale: str | None = None
    scope: Scope | None = None
    four_over_six: FourOverSix | None = None
    static: bool = False

    @cached_property
    def is_quantized(self) -> bool:
        return FORMATS[self.format].is_quantized

    def to_json(self) -> dict[str, Any]:
        """This operand as the contract writes it: only what is set, in a fixed order."""
        shown: dict[str, Any] = {"format": self.format}
        if self.block is not None:
            shown["block"] = list(self.block)
        if self.scale is not None:
            shown["scale"] = self.scale
        if self.scope is not None:
            shown["scope"] = self.scope
        if self.four_over_six is not None:
            shown["four_over_six"] = {"error": self.four_over_six.error, "max": self.four_over_six.maximum}
        if self.static:
            shown["static"] = True
        return shown

    @classmethod
    def from_json(cls, shown: dict[str, Any]) -> Quantization:
        block = shown.get("block")
        adaptive = shown.get("four_over_six")
        return cls(
            format=shown["format"],
            block=(block[0], block[1]) if block else None,
            scale=shown.get("scale"),
            scope=shown.get("scope"),
            four_over_six=FourOverSix(adaptive["error"], adaptive["max"]) if adaptive else None,
            static=shown.get("static", False),
        )

    def __str__(self) -> str:
        words = [self.format]
        if self.scope is not None and FORMATS[self.format].outer_scale:
            words.append(self.scope)
        if FORMATS[self.format].groups and self.block is not None:
            words.append(f"group {self.block[1]}")
        elif self.block == (16, 16):
            words.append("weight_block 16x16")
        if self.format == "fp8_block" and self.scale == "fp32":
            words.append("scales fp32")
        if self.four_over_six is not None:
            words.append(f"four_over_six {self.four_over_six.error} max {self.four_over_six.maximum}")
        if self.static:
            words.append("static")
        return " ".join(words)


@record
class Decision:
    """Everything decided for one tensor. `input` is None where nothing is multiplied (a norm, a bias).

    `backward` is None unless the trainer multiplies in a quantized format. `train` is set where the trainer's
    forward differs from what is served: `bf16`, or `fake_quant` (the BF16 weight rounded through the converter's
    quantizer).
    """

    weight: Quantization
    input: Quantization | None = None
    backward: Backward | None = None
    train: Train | None = None
    hadamard: bool = False
    stochastic_rounding: bool = False

    @cached_property
    def is_quantized(self) -> bool:
        return self.weight.is_quantized or (self.input is not None and self.input.is_quantized)

    @property
    def trains_quantized(self) -> bool:
        """Whether the trainer runs this GEMM in a low-precision format."""
        return self.is_quantized and self.train is None

    def to_json(self) -> dict[str, Any]:
        """This decision as the contract writes it: only what is set, in a fixed order."""
        shown: dict[str, Any] = {"weight": self.weight.to_json()}
        if self.input is not None:
            shown["input"] = self.input.to_json()
        if self.backward is not None:
            shown["backward"] = self.backward
        if self.train is not None:
            shown["train"] = self.train
        if self.hadamard:
            shown["hadamard"] = True
        if self.stochastic_rounding:
            shown["stochastic_rounding"] = True
        return shown

    @classmethod
    def from_json(cls, shown: dict[str, Any]) -> Decision:
        return cls(
            weight=Quantization.from_json(shown["weight"]),
            input=Quantization.from_json(shown["input"]) if "input" in shown else None,
            backward=shown.get("backward"),
            train=shown.get("train"),
            hadamard=shown.get("hadamard", False),
            stochastic_rounding=shown.get("stochastic_rounding", False),
        )

    def __str__(self) -> str:
        """The spec that a policy would give it; equal texts are equal decisions."""
        words = [self._operands()]
        if self.backward is not None:
            words.append(f"backward {self.backward}")
        if self.hadamard:
            words.append("hadamard")
        if self.stochastic_rounding:
            words.append("stochastic_rounding")
        if self.train is not None:
            words.append(f"train {self.train}")
        return ", ".join(words)

    def _operands(self) -> str:
        weight, operand = self.weight, self.input
        if operand is None or (operand == weight and not weight.is_quantized):
            return weight.format if operand is not None or not weight.is_quantized else f"weight {weight}"
        if operand.format == "bf16":
            return f"weight {weight}"
        if not self._is_short(operand):
            return f"weight {weight}, input {operand}"
        return str(operand) + (", weight_block 16x16" if weight.block == (16, 16) else "")

    def _is_short(self, operand: Quantization) -> bool:
        """Whether `FORMAT [SCOPE]`, with the same options for both operands, says it all."""
        weight = self.weight
        alike = (weight.format, weight.scale, weight.four_over_six) == (
            operand.format,
            operand.scale,
            operand.four_over_six,
        )
        return alike and not operand.static and weight.scope == FORMATS[weight.format].weight_scope


BF16 = Decision(Quantization("bf16"), Quantization("bf16"))
"""An unquantized matrix multiplication."""


@cache
def kept(dtype: str) -> Decision:
    """This keeps a tensor that is no GEMM operand in its stored dtype (`bf16`, `fp16`, `fp32`)."""
    return Decision(Quantization(dtype))
