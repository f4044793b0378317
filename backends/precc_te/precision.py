"""What TransformerEngine can know of a decision: the recipe a linear layer runs, and every setting inside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeAlias

from precc.formats import Decision, FourOverSix, Quantization
from precc.formats.decision import Backward
from precc.records import record

Recipe: TypeAlias = Literal["bf16", "mxfp8", "nvfp4", "blockwise", "tensorwise"]


@dataclass(frozen=True, slots=True)
class TePrecision:
    """How one TransformerEngine linear layer runs in training.

    `row_scaled`, `weight_2d`, `hadamard`, `stochastic_rounding` and the two four-over-six settings are NVFP4's;
    `pow2_scales` is that of FP8 block and per-tensor scales; `gradient` the element of FP8 gradients; `fast_math`
    NVFP4's approximate reciprocals, which no contract asks for.
    """

    recipe: Recipe
    backward: Backward | None = None
    row_scaled: bool = False
    weight_2d: bool = False
    hadamard: bool = False
    stochastic_rounding: bool = False
    weight_4over6: FourOverSix | None = None
    input_4over6: FourOverSix | None = None
    pow2_scales: bool = False
    gradient: Literal["e4m3", "e5m2"] = "e4m3"
    fast_math: bool = False

    @property
    def is_quantized(self) -> bool:
        return self.recipe != "bf16"

    @property
    def four_over_six(self) -> bool:
        return self.weight_4over6 is not None or self.input_4over6 is not None

    @property
    def settings(self) -> TePrecision:
        """The same without its backward mode: what the process-wide settings of its recipe decide."""
        return replace(self, backward=None)

    def __str__(self) -> str:
        shown: list[str] = [self.recipe]
        if self.recipe == "nvfp4":
            shown.append("per token" if self.row_scaled else "per tensor")
        if self.recipe == "blockwise":
            shown.append("power-of-two scales" if self.pow2_scales else "FP32 scales")
        elif self.pow2_scales:
            shown.append("power-of-two scales")
        shown += [word for name, word in _SWITCHES if getattr(self, name)]
        shown += [f"{side} {_adaptive(said)}" for side, said in self._adaptive_sides if said is not None]
        if self.gradient != "e4m3":
            shown.append("E5M2 gradients")
        if self.backward is not None:
            shown.append(f"backward {self.backward}")
        return ", ".join(shown)

    @property
    def _adaptive_sides(self) -> tuple[tuple[str, FourOverSix | None], ...]:
        return ("weights", self.weight_4over6), ("inputs", self.input_4over6)


_SWITCHES = (
    ("weight_2d", "16×16 weight blocks"),
    ("hadamard", "Hadamard"),
    ("stochastic_rounding", "stochastic rounding"),
    ("fast_math", "fast math"),
)


def _adaptive(setting: FourOverSix) -> str:
    return f"four-over-six {setting.error} max {setting.maximum}"


@record
class Unaddressed:
    """The decision of a tensor that no TransformerEngine linear layer multiplies: never quantized."""

    def __str__(self) -> str:
        return "bf16 (no TE module)"


def part_apart(one: TePrecision, other: TePrecision) -> str:
    """The part of a decision in which two precisions differ: the weight's unless all else is alike but one."""
    if one.settings == other.settings:
        return "backward"
    alike = replace(one, row_scaled=other.row_scaled, input_4over6=other.input_4over6)
    return "input" if alike.settings == other.settings else "weight"


BF16 = TePrecision("bf16")
UNADDRESSED = Unaddressed()


@record
class Refusal:
    """Why TransformerEngine has no such linear layer, and what would work.

    `part` of the decision is what it is about. `reported` is the code under which precc's own rules say the same.
    """

    reason: str
    help: str
    part: str = "weight"
    reported: str = ""


SERVED_ONLY = "add `train bf16`: the trainer then runs it in BF16, and only the server in this format"


@cache
def precision_of(decision: Decision) -> TePrecision | Refusal:
    """This is how a linear layer with that decision runs, or why none can."""
    if not decision.trains_quantized:
        return _unquantized(decision)
    weight, operand = decision.weight, decision.input
    if operand is None or not operand.is_quantized:
        return _no_pair(f"TransformerEngine has no weight-only {weight.format}: it quantizes both operands")
    if weight.format != operand.format:
        both = f"weights in {weight.format} and inputs in {operand.format}"
        return _no_pair(f"TransformerEngine has no recipe with {both}", "input")
    if operand.static:
        return _no_pair("TransformerEngine has no static input scales", "input")
    if weight.format not in _RECIPES:
        return _no_pair(f"TransformerEngine has no {weight.format} recipe")
    return _RECIPES[weight.format](decision, weight, operand)


def _no_pair(reason: str, part: str = "weight") -> Refusal:
    return Refusal(reason, SERVED_ONLY, part, "P505")


def _unquantized(decision: Decision) -> TePrecision | Refusal:
    if decision.train is None and decision.weight.format != "bf16":
        reason = f"the trainer runs in BF16 (`--bf16`) and has no linear layer in {decision.weight.format} beside it"
        return Refusal(reason, "write `bf16`")
    return BF16


def _mxfp8(decision: Decision, weight: Quantization, operand: Quantization) -> TePrecision | Refusal:
    return TePrecision("mxfp8", decision.backward)


def _blockwise(decision: Decision, weight: Quantization, operand: Quantization) -> TePrecision | Refusal:
    if weight.scale != operand.scale:
        return Refusal("TransformerEngine's block FP8 has one type of scale for both operands", _SCALES)
    return TePrecision("blockwise", decision.backward, pow2_scales=weight.scale == "pow2")


_SCALES = (
    "write `fp8_block` or `fp8_block scales fp32`: right behind the format, `scales` belongs to both operands, in a "
    "clause of its own to the weights"
)


def _tensorwise(decision: Decision, weight: Quantization, operand: Quantization) -> TePrecision | Refusal:
    for side, scope in (("weight", weight.scope), ("input", operand.scope)):
        if scope != "per_tensor":
            reason = f"TransformerEngine scales FP8 per tensor only; this {side} is {scope}"
            return Refusal(reason, f"write `fp8 per_tensor`, or {SERVED_ONLY}", side)
    return TePrecision("tensorwise", decision.backward)


def _nvfp4(decision: Decision, weight: Quantization, operand: Quantization) -> TePrecision | Refusal:
    native = decision.backward == "native"  # Hadamard is columnwise, stochastic rounding the gradient's: backward only
    precision = TePrecision(
        "nvfp4",
        decision.backward,
        row_scaled=operand.scope == "per_token",
        weight_2d=weight.block == (16, 16),
        hadamard=decision.hadamard and native,
        stochastic_rounding=decision.stochastic_rounding and native,
        weight_4over6=weight.four_over_six,
        input_4over6=operand.four_over_six,
    )
    return next((why for applies, why in _NVFP4_LIMITS if applies(precision)), precision)


_NVFP4_LIMITS: tuple[tuple[Callable[[TePrecision], bool], Refusal], ...] = (
    (
        lambda p: p.row_scaled and p.backward == "native",
        Refusal(
            "per-token NVFP4 is a forward-only mode of TransformerEngine: it has no native backward",
            "write `backward high_precision` or `backward dequantized`",
            "backward",
            "P304",
        ),
    ),
    (
        lambda p: p.row_scaled and p.weight_2d,
        Refusal(
            "per-token NVFP4 in TransformerEngine excludes 16×16 weight blocks",
            "leave `weight_block 16x16` out, or write `nvfp4 per_tensor`",
        ),
    ),
    (
        lambda p: p.four_over_six and (p.hadamard or p.stochastic_rounding),
        Refusal(
            "TransformerEngine builds no four-over-six quantizer with Hadamard transforms or stochastic rounding",
            "leave `hadamard` and `stochastic_rounding` out where `four_over_six` stands",
            "switches",
        ),
    ),
)
"""From the NVFP4 kernels' own checks; all of them are raised at the first step there, not at start."""

_RECIPES: dict[str, Callable[[Decision, Quantization, Quantization], TePrecision | Refusal]] = {
    "mxfp8": _mxfp8,
    "nvfp4": _nvfp4,
    "fp8_block": _blockwise,
    "fp8": _tensorwise,
}
