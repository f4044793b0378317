"""Quantizer factories for TransformerEngine's custom recipes, one importable function a precision.

A module's recipe in Megatron names one by its path, `precc_te.factories.mxfp8_dequantized`. They exist where the
process-wide environment cannot say what a contract says: two backward modes in one model, or two NVFP4 settings.
The names are generated: the recipe, its settings, its backward mode (`nvfp4_per_token_high_precision`), and
`factory_name` and `factory_precision` translate between names and precisions.

What each builds is what TransformerEngine's built-in recipe of that format builds (2.20's
`custom_recipes/quantizer_factories.py`); a backward mode other than native is a hybrid quantizer whose columnwise
half, which only the backward GEMMs read, stays unquantized: from the original for `high_precision`, from the
dequantized rowwise half for `dequantized`; the gradient is not quantized.

TransformerEngine is imported when a factory is first called. The constructor calls are checked against the
signatures in TransformerEngine's source; nothing here was run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from precc.formats import FourOverSix
from precc.formats.decision import Backward
from precc_te.precision import Recipe, TePrecision

if TYPE_CHECKING:
    from transformer_engine.pytorch.quantization import QuantizerRole

MODULE = "precc_te.factories"

Slot: TypeAlias = Literal["input", "weight", "grad_output"]
Factory: TypeAlias = "Callable[[QuantizerRole | None], Any]"

_BACKWARD: tuple[Backward, ...] = ("native", "high_precision", "dequantized")
_RECIPES: tuple[Recipe, ...] = ("mxfp8", "nvfp4", "blockwise", "tensorwise")
_SWITCHES: dict[str, str] = {
    "per_token": "row_scaled",
    "weight_16x16": "weight_2d",
    "hadamard": "hadamard",
    "stochastic_rounding": "stochastic_rounding",
    "pow2": "pow2_scales",
}
_ADAPTIVE: dict[str, tuple[str, FourOverSix]] = {
    f"{side}_4over6_{error}_{maximum}": (f"{side}_4over6", FourOverSix(error, maximum))
    for side in ("weight", "input")
    for error in cast("tuple[Literal['mae', 'mse'], ...]", ("mae", "mse"))
    for maximum in cast("tuple[Literal[256, 448], ...]", (256, 448))
}


def factory_name(precision: TePrecision) -> str:
    """The name of the factory of a quantized precision."""
    words = [precision.recipe, *(word for word, name in _SWITCHES.items() if getattr(precision, name))]
    words += [word for word, (name, said) in _ADAPTIVE.items() if getattr(precision, name) == said]
    return "_".join((*words, precision.backward or "native"))


def factory_precision(name: str) -> TePrecision | None:
    """The precision whose factory has that name; None if there is none."""
    recipe: Recipe | None = next((recipe for recipe in _RECIPES if name.startswith(f"{recipe}_")), None)
    backward = next((mode for mode in _BACKWARD if name.endswith(f"_{mode}")), None)
    if recipe is None or backward is None:
        return None
    rest = name[len(recipe) : -len(backward)]
    found: dict[str, Any] = {field: True for word, field in _SWITCHES.items() if f"_{word}_" in rest}
    found |= {field: said for word, (field, said) in _ADAPTIVE.items() if f"_{word}_" in rest}
    precision = TePrecision(recipe, backward, **found)
    return precision if factory_name(precision) == name else None


def __getattr__(name: str) -> Factory:
    precision = factory_precision(name)
    if precision is None:
        raise AttributeError(f"module {MODULE!r} has no factory {name!r}")
    return _factory(precision)


@cache
def _factory(precision: TePrecision) -> Factory:
    """One function object a precision: TransformerEngine tells recipes apart by their factory."""

    def factory(role: QuantizerRole | None) -> Any:
        return quantizer(precision, _slot(role))

    factory.__name__ = factory.__qualname__ = factory_name(precision)
    factory.__module__ = MODULE
    factory.__doc__ = f"This builds the quantizer of one slot of a linear layer in {precision}."
    return factory


def _slot(role: QuantizerRole | None) -> Slot | None:
    """What a slot holds; None for the boundaries (output, gradient of the input), whose role is None or empty."""
    if role is None or role.module_type not in ("linear", "grouped_linear"):
        return None
    return cast("Slot", role.tensor_type) if role.tensor_type in ("input", "weight", "grad_output") else None


def quantizer(precision: TePrecision, slot: Slot | None) -> Any:
    """This builds the quantizer of one slot. Needs TransformerEngine 2.19 and, for NVFP4, a GPU."""
    if precision.backward == "native" or slot is None:
        return _BUILD[precision.recipe](precision, slot)
    from transformer_engine.pytorch.tensor.identity_tensor import IdentityQuantizer

    if slot == "grad_output":
        return IdentityQuantizer()
    from transformer_engine.pytorch.tensor.hybrid_tensor import HybridQuantizer

    return HybridQuantizer(
        rowwise_quantizer=_BUILD[precision.recipe](precision, slot),
        columnwise_quantizer=IdentityQuantizer(),
        columnwise_source="original" if precision.backward == "high_precision" else "rowwise_dequantized",
    )


def _mxfp8(precision: TePrecision, slot: Slot | None) -> Any:
    from transformer_engine.pytorch.constants import DType
    from transformer_engine.pytorch.tensor.mxfp8_tensor import MXFP8Quantizer

    return MXFP8Quantizer(fp8_dtype=DType.kFloat8E4M3)


def _blockwise(precision: TePrecision, slot: Slot | None) -> Any:
    from transformer_engine.pytorch.constants import DType
    from transformer_engine.pytorch.tensor.float8_blockwise_tensor import Float8BlockQuantizer

    return Float8BlockQuantizer(
        fp8_dtype=DType.kFloat8E4M3,
        rowwise=True,
        columnwise=True,
        amax_epsilon=0.0,
        force_pow_2_scales=precision.pow2_scales,
        block_scaling_dim=2 if slot == "weight" else 1,
    )


def _tensorwise(precision: TePrecision, slot: Slot | None) -> Any:
    import torch
    from transformer_engine.pytorch.constants import DType
    from transformer_engine.pytorch.tensor.float8_tensor import Float8CurrentScalingQuantizer

    return Float8CurrentScalingQuantizer(
        fp8_dtype=DType.kFloat8E4M3,
        device=torch.device("cuda"),
        force_pow_2_scales=precision.pow2_scales,
        amax_epsilon=0.0,
    )


def _nvfp4(precision: TePrecision, slot: Slot | None) -> Any:
    from transformer_engine.pytorch.constants import DType
    from transformer_engine.pytorch.tensor.nvfp4_tensor import NVFP4Quantizer

    gradient = slot == "grad_output"
    hadamard = precision.hadamard and slot != "weight"
    adaptive = {"weight": precision.weight_4over6, "input": precision.input_4over6}.get(slot or "")
    return NVFP4Quantizer(
        fp4_dtype=DType.kFloat4E2M1,
        rowwise=True,
        columnwise=True,
        with_rht=hadamard,
        with_post_rht_amax=hadamard,
        with_2d_quantization=precision.weight_2d and slot == "weight",
        stochastic_rounding=precision.stochastic_rounding and gradient,
        row_scaled_nvfp4=precision.row_scaled and slot == "input",
        nvfp4_use_4over6=adaptive is not None,
        nvfp4_e4m3_max=adaptive.maximum if adaptive is not None else 448,
        nvfp4_4over6_err_mode=adaptive.error.upper() if adaptive is not None else "MAE",
    )


_BUILD: dict[str, Callable[[TePrecision, Slot | None], Any]] = {
    "mxfp8": _mxfp8,
    "blockwise": _blockwise,
    "tensorwise": _tensorwise,
    "nvfp4": _nvfp4,
}
