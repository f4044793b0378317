"""The quantization methods that SGLang has for a module, as a table, and which decision means which."""

from __future__ import annotations

from functools import cache

from precc.formats import FORMATS, Decision, FourOverSix, Quantization
from precc.formats.table import SCOPES, Scope
from precc.records import record, replace
from precc_sglang.versions import BLACKWELL, Release


@record
class Family:
    """One way in which SGLang holds and multiplies the weights of a module.

    `stored` are the parameters of the module's checkpoint tensors with their safetensors dtypes. `algo` is its name
    in a `modelopt_mixed` map, where it has one. `linear`, `experts` and `head` say which kinds of module run it;
    `capability` is the least compute capability whose kernels multiply as the family says.
    """

    name: str
    title: str
    stored: tuple[str, ...]
    algo: str | None = None
    linear: bool = True
    experts: bool = True
    head: bool = False
    capability: int = 80
    group: int | None = None

    def __str__(self) -> str:
        return self.title


UNQUANTIZED = Family("unquantized", "unquantized", (), head=True)
MXFP8 = Family("mxfp8", "MXFP8", ("weight F8_E4M3", "weight_scale_inv U8"), algo="MXFP8", capability=BLACKWELL)
FP8_BLOCK = Family("fp8_block", "FP8 in 128×128 blocks", ("weight F8_E4M3", "weight_scale_inv F32"), algo="FP8_PB_WO")
FP8_TENSOR = Family(
    "fp8_tensor",
    "FP8 with static per-tensor scales",
    ("weight F8_E4M3", "weight_scale F32", "input_scale F32"),
    algo="FP8",
    head=True,
    capability=89,
)
FP8_CHANNEL = Family(
    "fp8_channel",
    "FP8 with per-channel weight and per-token input scales",
    ("weight F8_E4M3", "weight_scale F32"),
    capability=89,
)
_NVFP4_WEIGHT = ("weight U8", "weight_scale F8_E4M3", "weight_scale_2 F32")
NVFP4_TOKEN = Family(
    "nvfp4_token",
    "NVFP4 with per-token inputs",
    _NVFP4_WEIGHT,
    algo="NVFP4",
    linear=False,
    capability=BLACKWELL,
)
NVFP4_STATIC = Family(
    "nvfp4_static",
    "NVFP4 with static input scales",
    (*_NVFP4_WEIGHT, "input_scale F32"),
    algo="NVFP4",
    head=True,
    capability=BLACKWELL,
)
NVFP4_WEIGHTS = Family("nvfp4_weights", "weight-only NVFP4", _NVFP4_WEIGHT, algo="W4A16_NVFP4", head=True)
MXFP4_WEIGHTS = Family("mxfp4_weights", "weight-only MXFP4", ("weight U8", "weight_scale U8"), linear=False)
MXFP4 = Family(
    "mxfp4",
    "MXFP4 with MXFP8 inputs",
    ("weight I8", "weight_scale_inv F8_E8M0"),
    linear=False,
    capability=BLACKWELL,
)
INT4 = Family("int4", "weight-only INT4", ("weight_packed I32", "weight_scale BF16", "weight_shape I64"))

INT4_GROUPS = (32, 128)
"""The group sizes that both the dense and the expert kernels of pack-quantized INT4 take."""

_WITH_ALGORITHM = (MXFP8, FP8_BLOCK, FP8_TENSOR, NVFP4_TOKEN, NVFP4_STATIC, NVFP4_WEIGHTS)


def mixable(release: Release) -> frozenset[Family]:
    """The families that `modelopt_mixed` can put side by side in a version of SGLang."""
    return frozenset(family for family in _WITH_ALGORITHM if family.algo in release.mixed)


# weight format, its scope, input format, its scope, whether the input scale is stored
_BY_DECISION: dict[tuple[str, str | None, str, str | None, bool], Family] = {
    ("mxfp8", None, "mxfp8", None, False): MXFP8,
    ("fp8_block", None, "fp8_block", None, False): FP8_BLOCK,
    ("fp8", "per_tensor", "fp8", "per_tensor", True): FP8_TENSOR,
    ("fp8", "per_channel", "fp8", "per_token", False): FP8_CHANNEL,
    ("nvfp4", "per_tensor", "nvfp4", "per_token", False): NVFP4_TOKEN,
    ("nvfp4", "per_tensor", "nvfp4", "per_tensor", True): NVFP4_STATIC,
    ("nvfp4", "per_tensor", "bf16", None, False): NVFP4_WEIGHTS,
    ("mxfp4", None, "bf16", None, False): MXFP4_WEIGHTS,
    ("mxfp4", None, "mxfp8", None, False): MXFP4,
    ("int4", None, "bf16", None, False): INT4,
}


@cache
def family_of(decision: Decision) -> Family | None:
    """This is the method that serves a decision; None where SGLang has none for it."""
    if not decision.is_quantized:
        return UNQUANTIZED
    weight, operand = decision.weight, decision.input
    if operand is None:
        return None
    found = _BY_DECISION.get((weight.format, weight.scope, operand.format, operand.scope, operand.static))
    if found is INT4:
        group = weight.block[1] if weight.block else 0
        return replace(INT4, group=group) if group in INT4_GROUPS else None
    if found is FP8_BLOCK and weight.scale != operand.scale:
        return None
    return found


BY_NAME: dict[str, Family] = {family.name: family for family in _BY_DECISION.values()}
"""The families that serve a decision below 16 bits."""

_TRAINED = frozenset({MXFP8, FP8_BLOCK, NVFP4_TOKEN})
"""The families that a trainer multiplies like the server; the others have stored input scales, or none."""


def operands_of(family: Family, group: int | None = None) -> tuple[Quantization, Quantization, bool]:
    """The two operands that a family serves, with the formats' own block scales, and whether a trainer has the same."""
    key = next(key for key, found in _BY_DECISION.items() if found is family)
    (weight, scope, operand, input_scope, static), form = key, FORMATS[key[0]]
    block = (1, group) if group is not None else form.weight_block
    multiplied = FORMATS[operand]
    return (
        Quantization(weight, block, form.block_scale, _scope(scope)),
        Quantization(operand, multiplied.input_block, multiplied.block_scale, _scope(input_scope), static=static),
        family in _TRAINED,
    )


def _scope(word: str | None) -> Scope | None:
    return next((scope for scope in SCOPES if scope == word), None)


def is_w4a4(family: Family | None) -> bool:
    """Whether both operands are NVFP4."""
    return family in (NVFP4_TOKEN, NVFP4_STATIC)


def is_mxfp4(family: Family | None) -> bool:
    """Whether weights are in MXFP4."""
    return family in (MXFP4, MXFP4_WEIGHTS)


def adaptive_words(adaptive: FourOverSix | None) -> str:
    """Four-over-six in words, as `Served.activation` has it."""
    return f"four_over_six {adaptive.error} max {adaptive.maximum}" if adaptive else ""
