"""What a live process has in force: TransformerEngine's recipe objects in this backend's words.

The objects are read by their attributes, so that nothing of TransformerEngine or Megatron is imported here. A setting
that a version does not have yet has its only value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from precc.formats import FourOverSix
from precc.records import record
from precc_te import factories
from precc_te.environment import ADAPTIVE_FAST_MATH, FAST_MATH
from precc_te.precision import BF16, TePrecision


@record
class Foreign:
    """A recipe in force that no contract asks for, such as delayed scaling, or one of somebody's own factory."""

    name: str

    def __str__(self) -> str:
        return self.name


Running: TypeAlias = TePrecision | Foreign
"""What a linear layer runs."""


def running(enabled: bool, recipe: Any, environment: Mapping[str, str]) -> Running:
    """This is a recipe object in force, in a process with that environment (kernels read fast math from it)."""
    if not enabled:
        return BF16
    kind = type(recipe).__name__
    if kind not in _KINDS:
        return Foreign(kind)
    found = _KINDS[kind](recipe)
    if isinstance(found, Foreign):
        return found
    if recipe.fp8_format.name == "HYBRID" and found.recipe != "nvfp4" and kind != "CustomRecipe":
        found = replace(found, gradient="e5m2")
    override = getattr(recipe, "backward_override", None)
    found = replace(found, backward=override or found.backward or "native")
    return replace(found, fast_math=_fast_math(found, environment)) if found.recipe == "nvfp4" else found


def _fast_math(found: TePrecision, environment: Mapping[str, str]) -> bool:
    adaptive = found.four_over_six and environment.get(ADAPTIVE_FAST_MATH) == "1"
    return environment.get(FAST_MATH, "0") != "0" or adaptive


def _nvfp4(recipe: Any) -> TePrecision:
    weight, operand = _four_over_six(recipe)
    return TePrecision(
        "nvfp4",
        row_scaled=getattr(recipe, "row_scaled_activation", False),
        weight_2d=not recipe.disable_2d_quantization,
        hadamard=not recipe.disable_rht,
        stochastic_rounding=not recipe.disable_stochastic_rounding,
        weight_4over6=weight,
        input_4over6=operand,
    )


def _four_over_six(recipe: Any) -> tuple[FourOverSix | None, FourOverSix | None]:
    """The settings of weights and of inputs."""
    scope = getattr(recipe, "nvfp4_4over6", "none")
    high = getattr(recipe, "nvfp4_4over6_e4m3_use_256", "all")
    error: Literal["mae", "mse"] = "mse" if getattr(recipe, "nvfp4_4over6_err_mode", "MAE") == "MSE" else "mae"
    weight, operand = (
        FourOverSix(error, 256 if high in sides else 448) if scope in sides else None
        for sides in (("weights", "all"), ("activations", "all"))
    )
    return weight, operand


def _custom(recipe: Any) -> Running:
    factory = recipe.qfactory
    path = f"{factory.__module__}.{factory.__qualname__}"
    known = factories.factory_precision(factory.__name__) if factory.__module__ == factories.MODULE else None
    return known or Foreign(f"the recipe of {path}")


_KINDS: dict[str, Callable[[Any], Running]] = {
    "MXFP8BlockScaling": lambda recipe: TePrecision(
        "mxfp8", weight_2d=getattr(recipe, "enable_2d_quantization", False)
    ),
    "Float8BlockScaling": lambda recipe: TePrecision("blockwise", pow2_scales=not recipe.use_f32_scales),
    "Float8CurrentScaling": lambda recipe: TePrecision("tensorwise", pow2_scales=bool(recipe.use_power_2_scales)),
    "NVFP4BlockScaling": _nvfp4,
    "CustomRecipe": _custom,
}
"""TransformerEngine's class → what its object runs, but for the backward mode, which all have alike."""


def default(recipes: Any, recipe: str, environment: Mapping[str, str]) -> Running:
    """This is a class of TransformerEngine's module of recipes as Megatron makes it: E4M3, all else by default."""
    name, fields = _CLASSES[recipe]
    made = getattr(recipes, name)(**({"fp8_format": recipes.Format.E4M3} if fields else {}))
    return running(True, made, environment)


_CLASSES: dict[str, tuple[str, bool]] = {
    "mxfp8": ("MXFP8BlockScaling", True),
    "blockwise": ("Float8BlockScaling", True),
    "tensorwise": ("Float8CurrentScaling", True),
    "nvfp4": ("NVFP4BlockScaling", False),
}
"""Recipe → TransformerEngine's class, and whether Megatron passes it a format."""

BUILT_IN = tuple(_CLASSES)
