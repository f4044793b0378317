"""The decisions that quantization tools have names for: two operands, and that what only a server runs is not trained.

Each is one that the language can spell. What is stored with a scale of its inputs, or quantized in its weights alone,
has no trainer that multiplies the same; such a decision says `train bf16`.
"""

from __future__ import annotations

from precc.formats import FORMATS, Decision, Quantization
from precc.formats.table import Scope
from precc.records import replace

BF16_INPUT = Quantization("bf16")


def weight(format: str, scope: Scope | None = None, group: int | None = None, scale: str | None = None) -> Quantization:
    """A weight in a format, with the scope, group or scale type that the tool chose where the format has a choice."""
    form = FORMATS[format]
    block = (1, group) if group is not None else form.weight_block
    return Quantization(format, block, scale or form.block_scale, scope or form.weight_scope)


def operand(format: str, scope: Scope | None = None, static: bool = False, scale: str | None = None) -> Quantization:
    """An input in a format; `static` for a scale that lies in the checkpoint."""
    form = FORMATS[format]
    return Quantization(format, form.input_block, scale or form.block_scale, scope or form.input_scope, static=static)


def served(weights: Quantization, inputs: Quantization = BF16_INPUT) -> Decision:
    """What a server runs and no trainer does."""
    return Decision(weights, inputs, train="bf16")


def fp8_block(scale: str) -> Decision:
    """FP8 in 128×128 blocks; `scale` is `fp32`, or `pow2` for powers of two stored as FP32."""
    return Decision(weight("fp8_block", scale=scale), operand("fp8_block", scale=scale))


FP8_STATIC = served(weight("fp8"), operand("fp8", "per_tensor", static=True))
FP8_DYNAMIC = Decision(weight("fp8"), operand("fp8", "per_tensor"))
FP8_CHANNEL = served(weight("fp8", "per_channel"), operand("fp8", "per_token"))
FP8_WEIGHTS = served(weight("fp8"))
FP8_BLOCK_WEIGHTS = served(weight("fp8_block", scale="fp32"))
MXFP8 = Decision(weight("mxfp8"), operand("mxfp8"))
MXFP4_WEIGHTS = served(weight("mxfp4"))
MXFP4 = served(weight("mxfp4"), operand("mxfp8"))
NVFP4_STATIC = served(weight("nvfp4"), operand("nvfp4", "per_tensor", static=True))
NVFP4_WEIGHTS = served(weight("nvfp4"))


def integers(bits: int, group: int) -> Decision | None:
    """Symmetric integer weights in groups along the contraction axis; None for a size that the language lacks."""
    form = FORMATS.get(f"int{bits}")
    return served(weight(form.name, group=group)) if form is not None and group in form.groups else None


def weights_only(decision: Decision) -> Decision:
    """The same weights with inputs in BF16."""
    return replace(decision, input=BF16_INPUT, train="bf16", backward=None)
