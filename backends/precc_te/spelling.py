"""The decision that a linear layer's precision is: what `precision.precision_of` has a precision for, the other way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from precc.formats import BF16, FORMATS, Decision, Quantization
from precc.formats.table import Scope
from precc_te.precision import Refusal, TePrecision, precision_of

_FORMATS = {"mxfp8": "mxfp8", "nvfp4": "nvfp4", "blockwise": "fp8_block", "tensorwise": "fp8"}


def decision_of(precision: TePrecision) -> Decision | Refusal:
    """This spells a precision, or says why no policy can; `precision_of` answers the precision for it again."""
    if not precision.is_quantized:
        return BF16
    precision = _effective(precision)
    unspelled = next((why for applies, why in _UNSPELLED if applies(precision)), None)
    if unspelled is not None:
        return unspelled
    decision = _decision(precision)
    back = precision_of(decision)
    return back if isinstance(back, Refusal) else decision


def _effective(precision: TePrecision) -> TePrecision:
    """Without what acts on a native backward pass only, where there is none: Hadamard, rounding, the gradient."""
    if precision.backward == "native":
        return precision
    return replace(precision, hadamard=False, stochastic_rounding=False, gradient="e4m3")


def _decision(precision: TePrecision) -> Decision:
    form = FORMATS[_FORMATS[precision.recipe]]
    scale = form.block_scale
    if precision.recipe == "blockwise":
        scale = "pow2" if precision.pow2_scales else "fp32"
    block = (16, 16) if precision.weight_2d else form.weight_block
    scope: Scope = "per_token" if precision.row_scaled else "per_tensor"
    return Decision(
        weight=Quantization(form.name, block, scale, form.weight_scope, precision.weight_4over6),
        input=Quantization(
            form.name, form.input_block, scale, scope if form.input_scopes else None, precision.input_4over6
        ),
        backward=precision.backward,
        hadamard=precision.hadamard,
        stochastic_rounding=precision.stochastic_rounding,
    )


_UNSPELLED: tuple[tuple[Callable[[TePrecision], bool], Refusal], ...] = (
    (
        lambda p: p.gradient != "e4m3",
        Refusal(
            "no format of a policy has gradients in E5M2", "train with `--fp8-format e4m3` (in a recipe, `fp8_format`)"
        ),
    ),
    (
        lambda p: p.fast_math,
        Refusal(
            "no policy asks for NVFP4's approximate reciprocals",
            "unset NVTE_USE_FAST_MATH and NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH",
        ),
    ),
    (
        lambda p: p.recipe == "tensorwise" and p.pow2_scales,
        Refusal(
            "no policy asks for per-tensor FP8 scales that are powers of two",
            "unset NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES",
        ),
    ),
)
