"""How tools store the formats: which names, with which dtypes, so that a checkpoint that precc did not write is
recognized for what it is.

The names are those of ModelOpt's and compressed-tensors' exports, of DeepSeek's FP8 release, of SGLang's `mxfp8`
method, and of the GPTQ and AWQ packers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

from precc.graph.headers import Stored

Words = Mapping[str, Stored]
"""What stands in one module, by the last word of its name."""


@dataclass(frozen=True)
class Layout:
    """One tool's way to store one format: the dtypes of the words that must be there, and those that may be."""

    format: str
    writer: str
    words: Mapping[str, tuple[str, ...]]
    may: frozenset[str] = frozenset()
    fits: Callable[[Words], bool] = field(default=lambda found: True)

    def matches(self, found: Words) -> bool:
        """Whether a module is stored so, and holds nothing else but a bias."""
        return (
            all(word in found and found[word].dtype in dtypes for word, dtypes in self.words.items())
            and found.keys() <= self.words.keys() | self.may | {"bias"}
            and self.fits(found)
        )


E4M3, FLOAT, EXPONENT = ("F8_E4M3",), ("F32", "BF16", "F16"), ("U8", "F8_E8M0")


def _one_a_row(found: Words) -> bool:
    scale = found["weight_scale"].shape
    return prod(scale) == 1 or scale[:1] == found["weight"].shape[:1]


LAYOUTS = (
    Layout(
        "nvfp4",
        "ModelOpt",
        {"weight": ("U8",), "weight_scale": E4M3, "weight_scale_2": FLOAT},
        frozenset({"input_scale"}),
    ),
    Layout(
        "nvfp4",
        "compressed-tensors",
        {"weight_packed": ("U8",), "weight_scale": E4M3, "weight_global_scale": FLOAT},
        frozenset({"input_global_scale"}),
    ),
    Layout("mxfp8", "SGLang", {"weight": E4M3, "weight_scale_inv": EXPONENT}),
    Layout("mxfp8", "ModelOpt", {"weight": E4M3, "weight_scale": EXPONENT}),
    Layout("mxfp4", "compressed-tensors", {"weight_packed": ("U8",), "weight_scale": EXPONENT}),
    Layout("fp8_block", "DeepSeek", {"weight": E4M3, "weight_scale_inv": FLOAT}),
    Layout("fp8", "ModelOpt", {"weight": E4M3, "weight_scale": FLOAT}, frozenset({"input_scale"}), _one_a_row),
    Layout("fp8_block", "compressed-tensors", {"weight": E4M3, "weight_scale": FLOAT}),
    Layout(
        "int4",
        "compressed-tensors",
        {"weight_packed": ("I32",), "weight_scale": FLOAT, "weight_shape": ("I64", "I32")},
        frozenset({"weight_zero_point", "weight_g_idx"}),
    ),
    Layout("int4", "GPTQ", {"qweight": ("I32",), "qzeros": ("I32",), "scales": FLOAT, "g_idx": ("I32",)}),
    Layout("int4", "AWQ", {"qweight": ("I32",), "qzeros": ("I32",), "scales": FLOAT}),
)

COMPANIONS = {word for layout in LAYOUTS for word in (*layout.words, *layout.may)} - {"weight"}
"""The words that stand beside a weight, or for it."""

UNQUANTIZED = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}

NOTES = {
    ("nvfp4", "compressed-tensors"): "its `weight_global_scale` is the reciprocal of `weight_scale_2`",
    ("mxfp8", "ModelOpt"): "SGLang renames such scales only when it loads pure `mxfp8` from disk",
    ("fp8_block", "compressed-tensors"): "SGLang's `fp8` method asks for `weight_scale_inv`",
}
"""What changes with the names."""


def recognize(found: Words) -> Layout | None:
    """The way in which a module is stored; None for one that no known tool writes."""
    return next((layout for layout in LAYOUTS if layout.matches(found)), None)
