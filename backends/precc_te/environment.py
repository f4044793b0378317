"""The process-wide settings of TransformerEngine: its environment, written and read.

The recipes read it once, when `transformer_engine` is imported, and Megatron passes them nothing else. A variable
that is set for one module is set for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from precc.formats import FourOverSix
from precc.formats.decision import Backward
from precc.records import record
from precc_te.precision import BF16, Recipe, TePrecision
from precc_te.versions import FOUR_OVER_SIX, ROW_SCALING, Engine

BACKWARD = "NVTE_BACKWARD_OVERRIDE"
NO_HADAMARD = "NVTE_NVFP4_DISABLE_RHT"
NO_STOCHASTIC_ROUNDING = "NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING"
NO_WEIGHT_2D = "NVTE_NVFP4_DISABLE_2D_QUANTIZATION"
ROW_SCALED = "NVTE_NVFP4_ROW_SCALED_ACTIVATION"
ADAPTIVE = "NVTE_NVFP4_4OVER6"
ADAPTIVE_256 = "NVTE_NVFP4_4OVER6_E4M3_USE_256"
ADAPTIVE_ERROR = "NVTE_NVFP4_4OVER6_ERR_MODE"
ADAPTIVE_FAST_MATH = "NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH"
FAST_MATH = "NVTE_USE_FAST_MATH"
BLOCK_FP32 = "NVTE_FP8_BLOCK_SCALING_FP32_SCALES"
TENSOR_POW2 = "NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES"

RECIPE_VARIABLES: tuple[str, ...] = (
    BACKWARD,
    NO_HADAMARD,
    NO_STOCHASTIC_ROUNDING,
    NO_WEIGHT_2D,
    ROW_SCALED,
    ADAPTIVE,
    ADAPTIVE_256,
    ADAPTIVE_ERROR,
    ADAPTIVE_FAST_MATH,
    FAST_MATH,
    BLOCK_FP32,
    TENSOR_POW2,
)
"""What the recipes and their quantizers read."""

OTHER_VARIABLES: tuple[str, ...] = (
    "FP4_RECIPE",
    "NVTE_DPA_FP8CS_O_in_F16",
    "NVTE_DPA_FP8DS_AMAX_ALGO",
    "NVTE_DPA_FP8DS_AMAX_HISTLEN",
    "NVTE_DPA_FP8DS_REDUCE_AMAX",
    "NVTE_DPA_FP8_FORMAT",
    "NVTE_DPA_FP8_RECIPE",
    "NVTE_DPA_FP8_RECIPE_DPA",
    "NVTE_DPA_FP8_RECIPE_MHA",
    "NVTE_FP8_DPA_BWD",
    "NVTE_UnfusedDPA_Emulate_FP8",
    "OPEN_TRAINING_INT4_FAKE_QAT_FLAG",
    "OPEN_TRAINING_INT4_GROUP_SIZE",
)
"""Other switches of precision, of attention, the fused MLP and INT4 training, that no contract sets."""

VARIABLES: tuple[str, ...] = RECIPE_VARIABLES + OTHER_VARIABLES
"""Every variable that is set or unset, so that none survives from another run."""

_SCOPES: dict[tuple[bool, bool], str] = {
    (False, False): "none",
    (True, False): "weights",
    (False, True): "activations",
    (True, True): "all",
}
"""(weights, inputs) → the scope's word."""


@record
class Process:
    """What one process runs: a backward mode for all recipes, and the settings of the recipes that it uses."""

    backward: Backward = "native"
    nvfp4: TePrecision | None = None
    blockwise: TePrecision | None = None
    tensorwise: TePrecision | None = None

    def variables(self) -> dict[str, str]:
        """The variables to set; every other one of `VARIABLES` is to be unset."""
        found: dict[str, str] = {}
        if self.backward != "native":
            found[BACKWARD] = self.backward
        if self.nvfp4 is not None:
            found |= _nvfp4_variables(self.nvfp4)
        if self.blockwise is not None:
            found[BLOCK_FP32] = _bit(not self.blockwise.pow2_scales)
        if self.tensorwise is not None:
            found[TENSOR_POW2] = _bit(self.tensorwise.pow2_scales)
        return found


def _nvfp4_variables(settings: TePrecision) -> dict[str, str]:
    found = {
        NO_HADAMARD: _bit(not settings.hadamard),
        NO_STOCHASTIC_ROUNDING: _bit(not settings.stochastic_rounding),
        NO_WEIGHT_2D: _bit(not settings.weight_2d),
        ROW_SCALED: _bit(settings.row_scaled),
        FAST_MATH: "0",
    }
    if settings.four_over_six:
        sides = (settings.weight_4over6, settings.input_4over6)
        found |= {
            ADAPTIVE: _SCOPES[sides[0] is not None, sides[1] is not None],
            ADAPTIVE_256: _SCOPES[_reaches_256(sides[0]), _reaches_256(sides[1])],
            ADAPTIVE_ERROR: next(side.error for side in sides if side is not None).upper(),
            ADAPTIVE_FAST_MATH: "0",
        }
    return found


def _bit(on: bool) -> str:
    return "1" if on else "0"


def _reaches_256(setting: FourOverSix | None) -> bool:
    return setting is not None and setting.maximum == 256


def builtin(recipe: Recipe, environment: Mapping[str, str], engine: Engine) -> TePrecision:
    """The recipe as Megatron builds it in a process with that environment: everything but its format by default.

    Raises ValueError where the recipe's own checks would fail.
    """
    if recipe == "bf16":
        return BF16
    mode = environment.get(BACKWARD)
    if mode not in (None, "high_precision", "dequantized"):
        raise ValueError(f"{BACKWARD}={mode} is no backward mode: every recipe fails its own check")
    backward: Backward = "native" if mode is None else mode  # type: ignore[assignment]
    if recipe == "nvfp4":
        return _nvfp4(backward, environment, engine)
    pow2 = {
        "blockwise": environment.get(BLOCK_FP32) != "1",
        "tensorwise": environment.get(TENSOR_POW2) == "1",
    }
    return TePrecision(recipe, backward, pow2_scales=pow2.get(recipe, False))


def _nvfp4(backward: Backward, environment: Mapping[str, str], engine: Engine) -> TePrecision:
    weight, operand = _four_over_six(environment) if engine.has(FOUR_OVER_SIX) else (None, None)
    adaptive = weight is not None or operand is not None
    return TePrecision(
        "nvfp4",
        backward,
        row_scaled=environment.get(ROW_SCALED) == "1" and engine.has(ROW_SCALING),
        weight_2d=environment.get(NO_WEIGHT_2D) != "1",
        hadamard=environment.get(NO_HADAMARD) != "1",
        stochastic_rounding=environment.get(NO_STOCHASTIC_ROUNDING) != "1",
        weight_4over6=weight,
        input_4over6=operand,
        fast_math=environment.get(FAST_MATH, "0") != "0" or (adaptive and environment.get(ADAPTIVE_FAST_MATH) == "1"),
    )


def _four_over_six(environment: Mapping[str, str]) -> tuple[FourOverSix | None, FourOverSix | None]:
    sides = _sides(environment, ADAPTIVE, "none")
    reach = _sides(environment, ADAPTIVE_256, "all")
    error = environment.get(ADAPTIVE_ERROR, "MAE").upper()
    if error not in ("MAE", "MSE"):
        raise ValueError(f"{ADAPTIVE_ERROR}={error} is neither MAE nor MSE")
    kind: Literal["mae", "mse"] = "mae" if error == "MAE" else "mse"
    weight, operand = (
        FourOverSix(kind, 256 if high else 448) if on else None for on, high in zip(sides, reach, strict=True)
    )
    return weight, operand


def _sides(environment: Mapping[str, str], variable: str, default: str) -> tuple[bool, bool]:
    word = environment.get(variable, default)
    found = next((sides for sides, scope in _SCOPES.items() if scope == word), None)
    if found is None:
        raise ValueError(f"{variable}={word} is none of {', '.join(_SCOPES.values())}")
    return found


def expressible(settings: TePrecision) -> bool:
    """Whether the environment can say these NVFP4 settings: it has one four-over-six error for both operands."""
    sides = (settings.weight_4over6, settings.input_4over6)
    return len({side.error for side in sides if side is not None}) <= 1
