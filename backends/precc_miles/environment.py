"""The environment of a run: converter, trainer, live export and server read it, each its own part.

Miles' NVFP4 quantizer (`miles/utils/nvfp4.py:11-16,53-54,85`) reads TransformerEngine's variables in the converter and
in the live export, so four-over-six and its maximum are one setting for all three; FlashInfer has its own four.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from precc.contract import Contract
from precc.formats import Decision, FourOverSix, Quantization
from precc.formats.decision import Backward
from precc.records import replace
from precc_miles.forms import FP8_BLOCK, NVFP4, Form

BACKWARD = "NVTE_BACKWARD_OVERRIDE"
NO_WEIGHT_2D = "NVTE_NVFP4_DISABLE_2D_QUANTIZATION"
NO_HADAMARD = "NVTE_NVFP4_DISABLE_RHT"
NO_STOCHASTIC_ROUNDING = "NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING"
ROW_SCALED = "NVTE_NVFP4_ROW_SCALED_ACTIVATION"
FAST_MATH = "NVTE_USE_FAST_MATH"
BLOCK_FP32 = "NVTE_FP8_BLOCK_SCALING_FP32_SCALES"
PER_TOKEN = "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION"
EXACT_MATH = ("FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH", "TRTLLM_DISABLE_FP4_QUANT_FAST_MATH")

ADAPTIVE = "NVTE_NVFP4_4OVER6"
ADAPTIVE_256 = "NVTE_NVFP4_4OVER6_E4M3_USE_256"
ADAPTIVE_ERROR = "NVTE_NVFP4_4OVER6_ERR_MODE"
ADAPTIVE_FAST = "NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH"
SERVED_ADAPTIVE, SERVED_256, SERVED_ERROR, SERVED_FAST = (
    name.replace("NVTE_NVFP4", "FLASHINFER_NVFP4") for name in (ADAPTIVE, ADAPTIVE_256, ADAPTIVE_ERROR, ADAPTIVE_FAST)
)

MODELLED: tuple[str, ...] = (
    BACKWARD,
    NO_WEIGHT_2D,
    NO_HADAMARD,
    NO_STOCHASTIC_ROUNDING,
    ROW_SCALED,
    FAST_MATH,
    BLOCK_FP32,
    PER_TOKEN,
    *EXACT_MATH,
    ADAPTIVE,
    ADAPTIVE_256,
    ADAPTIVE_ERROR,
    ADAPTIVE_FAST,
    SERVED_ADAPTIVE,
    SERVED_256,
    SERVED_ERROR,
    SERVED_FAST,
)
"""Variables whose values have a meaning here."""

VARIABLES: tuple[str, ...] = (
    *MODELLED,
    "FP4_RECIPE",
    "NVTE_DPA_FP8_RECIPE",
    "NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES",
    "NVTE_FP8_DPA_BWD",
    "OPEN_TRAINING_INT4_FAKE_QAT_FLAG",
    "OPEN_TRAINING_INT4_GROUP_SIZE",
    "SGLANG_DSV4_FP4_EXPERTS",
    "SGLANG_FORCE_FP8_MARLIN",
    "SGLANG_FORCE_MXFP8_BLOCK_CONVERT",
    "SGLANG_FP4_IGNORED_LAYERS",
    "SGLANG_FP8_IGNORED_LAYERS",
    "SGLANG_INT4_WEIGHT",
    "SGLANG_MOE_NVFP4_DISPATCH",
    "SGLANG_NVFP4_CKPT_FP8_GEMM_IN_ATTN",
    "SGLANG_NVFP4_CKPT_FP8_NEXTN_MOE",
    "SGLANG_QUANT_ALLOW_DOWNCASTING",
)
"""Every variable that is set or unset, so that none survives from another run."""

_SCOPES: Mapping[str, tuple[bool, bool]] = {
    "none": (False, False),
    "weights": (True, False),
    "activations": (False, True),
    "all": (True, True),
}
"""TransformerEngine's words for (weights, inputs)."""


_BIT = ("0", "1")
WORDS: Mapping[str, tuple[str, ...]] = {
    BACKWARD: ("high_precision", "dequantized"),
    ADAPTIVE: tuple(_SCOPES),
    ADAPTIVE_256: tuple(_SCOPES),
    ADAPTIVE_ERROR: ("MAE", "MSE"),
    SERVED_ERROR: ("MAE", "MSE"),
    **dict.fromkeys((FAST_MATH, ADAPTIVE_FAST, SERVED_FAST), ("0",)),
    **dict.fromkeys((NO_WEIGHT_2D, NO_HADAMARD, NO_STOCHASTIC_ROUNDING, ROW_SCALED, BLOCK_FP32, PER_TOKEN), _BIT),
    **dict.fromkeys((*EXACT_MATH, SERVED_ADAPTIVE, SERVED_256), _BIT),
}
"""The values that a variable may have; approximate arithmetic is none of them."""


def variables(contract: Contract, form: Form | None) -> dict[str, str]:
    """What is set; every other one of `VARIABLES` is to be unset."""
    decisions = [entry.decision for entry in contract.quantized() if form and entry.decision.weight.format == form.name]
    found: dict[str, str] = {}
    modes = {decision.backward: None for decision in decisions if decision.backward}
    mode = next(iter(modes), "native")
    if mode != "native":
        found[BACKWARD] = mode
    if form is NVFP4 and decisions:
        found |= dict(_nvfp4(decisions[0]))
    if form is FP8_BLOCK:
        found[BLOCK_FP32] = "1"
    return {name: found[name] for name in VARIABLES if name in found}


def _nvfp4(decision: Decision) -> Iterator[tuple[str, str]]:
    """Settings that converter, trainer, export and server have to share. Megatron's own defaults are the opposite."""
    yield from ((name, "1") for name in (NO_WEIGHT_2D, NO_HADAMARD, NO_STOCHASTIC_ROUNDING, ROW_SCALED, PER_TOKEN))
    yield FAST_MATH, "0"
    yield from ((name, "1") for name in EXACT_MATH)
    sides = (decision.weight.four_over_six, decision.input.four_over_six if decision.input else None)
    said = next((side for side in sides if side is not None), None)
    if said is None:
        return
    yield ADAPTIVE, _scope(*(side is not None for side in sides))
    yield ADAPTIVE_256, _scope(*(side is not None and side.maximum == 256 for side in sides))
    yield ADAPTIVE_ERROR, said.error.upper()
    yield ADAPTIVE_FAST, "0"
    if sides[1] is not None:
        yield SERVED_ADAPTIVE, "1"
        yield SERVED_256, "1" if sides[1].maximum == 256 else "0"
        yield SERVED_ERROR, sides[1].error.upper()
        yield SERVED_FAST, "0"


def _scope(weights: bool, inputs: bool) -> str:
    return next(word for word, sides in _SCOPES.items() if sides == (weights, inputs))


@dataclass(frozen=True)
class Process:
    """What an environment makes of a form on each stage: the variables of all of them are the same."""

    form: Form
    variables: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def stored(self) -> str:
        """The weights that the converter writes."""
        return str(replace(self.form.weight, four_over_six=self._adaptive(0)))

    @cached_property
    def exported(self) -> str:
        """The weights that the live export sends."""
        if self.form is FP8_BLOCK and self._is(BLOCK_FP32, "0"):
            return str(replace(self.form.weight, scale="pow2"))
        return self.stored

    @cached_property
    def trained(self) -> str:
        """What a linear layer of the trainer runs."""
        native = self._backward == "native"
        return str(
            Decision(
                self._trained_weight(),
                self._trained_input(),
                backward=self._backward,
                hadamard=native and self.form is NVFP4 and not self._is(NO_HADAMARD, "1"),
                stochastic_rounding=native and self.form is NVFP4 and not self._is(NO_STOCHASTIC_ROUNDING, "1"),
            )
        )

    @cached_property
    def served(self) -> str:
        """What a module of the server runs."""
        return str(Decision(*self.operands)) + self._inexact()

    @property
    def operands(self) -> tuple[Quantization, Quantization]:
        """The weights and the inputs that a module of the server multiplies."""
        operand = self.form.input
        if self.form is NVFP4:
            scope = "per_token" if self._is(PER_TOKEN, "1") else "per_tensor"
            operand = replace(operand, scope=scope, four_over_six=self._served_adaptive())
        return replace(self.form.weight, four_over_six=self._adaptive(0)), operand

    def _trained_weight(self) -> Quantization:
        weight = replace(self.form.weight, four_over_six=self._adaptive(0))
        if self.form is NVFP4 and not self._is(NO_WEIGHT_2D, "1"):
            return replace(weight, block=(16, 16))
        return replace(weight, scale=self._block_scale(weight))

    def _trained_input(self) -> Quantization:
        operand = replace(self.form.input, four_over_six=self._adaptive(1))
        if self.form is NVFP4:
            return replace(operand, scope="per_token" if self._is(ROW_SCALED, "1") else "per_tensor")
        return replace(operand, scale=self._block_scale(operand))

    def _block_scale(self, operand: Quantization) -> str | None:
        if self.form is not FP8_BLOCK:
            return operand.scale
        return "fp32" if self._is(BLOCK_FP32, "1") else "pow2"

    @property
    def _backward(self) -> Backward:
        return self.variables.get(BACKWARD, "native")  # type: ignore[return-value]

    def _adaptive(self, side: int) -> FourOverSix | None:
        """Four-over-six of weights (0) or inputs (1), with TransformerEngine's defaults: MAE, and 256 on both."""
        if self.form is not NVFP4 or not _SCOPES[self.variables.get(ADAPTIVE, "none")][side]:
            return None
        high = _SCOPES[self.variables.get(ADAPTIVE_256, "all")][side]
        mse = self.variables.get(ADAPTIVE_ERROR, "MAE") == "MSE"
        return FourOverSix("mse" if mse else "mae", 256 if high else 448)

    def _served_adaptive(self) -> FourOverSix | None:
        """FlashInfer's: `1` and nothing else is on, and its default maximum is 448."""
        if not self._is(SERVED_ADAPTIVE, "1"):
            return None
        mse = self.variables.get(SERVED_ERROR, "MAE") == "MSE"
        return FourOverSix("mse" if mse else "mae", 256 if self._is(SERVED_256, "1") else 448)

    def _inexact(self) -> str:
        exact = self.form is not NVFP4 or all(self._is(name, "1") for name in EXACT_MATH)
        return "" if exact else ", approximate scales"

    def _is(self, name: str, value: str) -> bool:
        return self.variables.get(name) == value
