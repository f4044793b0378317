"""What the converter does for one tensor: what it reads, how it computes, what it writes.

The output names are those that SGLang's loader asks for in the method that serves the format (`fp8`, `mxfp8`,
`modelopt_fp4`, compressed-tensors `pack-quantized`); what they hold is in `precc.formats.stored_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias

from precc.contract import Contract, Entry
from precc.contract.fold import braced
from precc.formats import FORMATS, Decision, Quantization, StoredPart, stored_parts
from precc.graph.layouts import STACKED_PARTS
from precc.graph.model import ModelGraph, Tensor
from precc.syntax.words import Role

Action: TypeAlias = Literal["copy", "cast", "quantize", "dequantize", "requantize", "keep_fp8_as_mxfp8"]
"""`copy` keeps the bytes, `cast` changes between 16 and 32 bits, `requantize` goes over the exact dequantized
values, `keep_fp8_as_mxfp8` keeps the codes and repeats the power-of-two scale of each 128×128 block (a source
that declares such scales and stores others is an error when it is read)."""

STORED_NAMES: dict[str, dict[str, str]] = {
    "fp8": {"codes": "weight", "outer_scale": "weight_scale", "input_scale": "input_scale"},
    "fp8_block": {"codes": "weight", "block_scale": "weight_scale_inv"},
    "mxfp8": {"codes": "weight", "block_scale": "weight_scale_inv"},
    "nvfp4": {
        "codes": "weight",
        "block_scale": "weight_scale",
        "outer_scale": "weight_scale_2",
        "input_scale": "input_scale",
    },
    "int4": {"codes": "weight_packed", "block_scale": "weight_scale", "shape": "weight_shape"},
}
"""The last word of each stored tensor's name, by format and part; what is not here is not written."""

SOURCE_DTYPES = {"bf16": "BF16", "fp16": "F16", "fp32": "F32", "fp8": "F8_E4M3", "mxfp4": "U8"}
"""What is read: the graph's word for a stored dtype → that of safetensors."""

SOURCE_BLOCK = (128, 128)
"""The only blocks that FP8 sources are stored in."""

SOURCE_BLOCKS = {"fp8": SOURCE_BLOCK, "mxfp4": (1, 32)}
"""The blocks that sources in low precision are stored in."""

SCALE_DTYPES = {"fp8": "F32", "mxfp4": "U8"}
"""What their block scales are read as."""

BYTES = {"I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1}
CODES_A_WORD = 8
"""Four-bit codes in one I32 of the compressed-tensors packing."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a checkpoint, beside the weight it belongs to.

    `beside` is empty for the weight's own name, else what its last word is replaced by (`weight_scale`); with a
    range in it (`{0..127}.up_proj.weight`) it stands for that many tensors, one an expert. `shape` is that of one.
    """

    beside: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The size of one, headers left aside."""
        return prod(self.shape) * BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.beside or 'itself'} {self.dtype} {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Stack:
    """How a tensor that holds all experts of a layer is taken apart: `[experts, rows, columns]`.

    `parts` name what each expert's matrix holds along its output axis: one weight, or gate and up; these stand one
    after the other, or, `interleaved`, row by row in turn.
    """

    experts: int
    parts: tuple[str, ...]
    interleaved: bool = False

    def to_json(self) -> dict[str, Any]:
        """This stack as the plan writes it."""
        return {"experts": self.experts, "parts": list(self.parts), "interleaved": self.interleaved}

    @classmethod
    def from_json(cls, shown: dict[str, Any]) -> Stack:
        return cls(shown["experts"], tuple(shown["parts"]), shown["interleaved"])

    def __str__(self) -> str:
        return f"{self.experts} × {'/'.join(self.parts)}{' interleaved' if self.interleaved else ''}"


@dataclass(frozen=True, slots=True)
class Written:
    """The converter's whole decision for one tensor.

    `axis` is the contraction axis that blocks run along, those of an MXFP4 source too, and `group` the name under
    which tensors share one NVFP4 outer scale; both are None where there is no such thing.
    """

    action: Action
    weight: Quantization
    axis: int | None
    group: str | None
    sources: tuple[StoredTensor, ...]
    outputs: tuple[StoredTensor, ...]
    stack: Stack | None = None

    @property
    def experts(self) -> int:
        """How many tensors each output stands for: all experts of a stack that is taken apart, else one."""
        return self.stack.experts if self.stack else 1

    @property
    def bytes(self) -> int:
        """What one tensor's outputs occupy."""
        return self.experts * sum(output.bytes for output in self.outputs)

    def __str__(self) -> str:
        along = f" along axis {self.axis}" if self.axis is not None else ""
        shared = f", outer scale shared by {self.group}" if self.group else ""
        sources, outputs = ("; ".join(map(str, stored)) for stored in (self.sources, self.outputs))
        shared += f", from {self.stack}" if self.stack else ""
        return f"{self.weight}{along}{shared} ({self.action} {sources} → {outputs})"


def written(entry: Entry, model: ModelGraph, apart: bool = False) -> Written:
    """This is what the converter does for one entry. Raises KeyError for a format or source that it lacks.

    `apart` is whether stacks that are not quantized are taken apart, too: see `parts_stacks`.
    """
    tensor, decision = entry.tensor, entry.decision
    weight = decision.weight
    stack = stack_of(tensor) if weight.is_quantized or apart else None
    return Written(
        action=_action(tensor, weight, has_power_of_two_scales(model)),
        weight=weight,
        axis=tensor.contraction
        if tensor.is_gemm and (weight.is_quantized or tensor.dtype == "mxfp4" or stack)
        else None,
        group=tensor.scale_group if _shares_outer_scale(weight) else None,
        sources=tuple(_sources(tensor)),
        outputs=tuple(_unstacked(tensor, decision, stack) if stack else _outputs(tensor, decision)),
        stack=stack,
    )


def parts_stacks(contract: Contract) -> bool:
    """Whether the stacks of a contract are taken apart: all of them, if one is quantized.

    A server's loader that has met one stack looks for no expert by itself any more, and what it then passes over stays
    as it was allocated.
    """
    return any(entry.decision.weight.is_quantized and stack_of(entry.tensor) for entry in contract.entries)


def stack_of(tensor: Tensor) -> Stack | None:
    """How a tensor stacks a layer's experts; None for one that is no stack known here."""
    if tensor.parameter or tensor.role is not Role.ROUTED_EXPERTS or len(tensor.shape) != 3:
        return None
    parts = STACKED_PARTS.get(tensor.part)
    return Stack(tensor.shape[0], parts, tensor.interleaved) if parts else None


def has_power_of_two_scales(model: ModelGraph) -> bool:
    """Whether an FP8 source declares its block scales to be powers of two (`scale_fmt: ue8m0`)."""
    return model.config.get("scale_fmt") == "ue8m0"


def _action(tensor: Tensor, weight: Quantization, power_of_two: bool) -> Action:
    if tensor.stored_block is None:
        if weight.is_quantized:
            return "quantize"
        return "copy" if tensor.dtype == weight.format else "cast"
    if not weight.is_quantized:
        return "dequantize"
    if tensor.dtype != "fp8":
        return "requantize"
    if weight.format == "fp8_block" and (weight.scale == "fp32" or power_of_two):
        return "copy"
    return "keep_fp8_as_mxfp8" if weight.format == "mxfp8" and power_of_two else "requantize"


def _shares_outer_scale(weight: Quantization) -> bool:
    """An NVFP4 outer scale stands above blocks; FP8's own scale is its only one and never shared."""
    return FORMATS[weight.format].outer_scale and weight.block is not None


def _sources(tensor: Tensor) -> Iterator[StoredTensor]:
    own = tensor.parameter or tensor.path[-1]
    dtypes = (SOURCE_DTYPES[tensor.dtype], SCALE_DTYPES.get(tensor.dtype, ""))
    for (word, shape), dtype in zip(tensor.stored(), dtypes, strict=False):
        name = own + word.removeprefix("weight")
        yield StoredTensor("" if name == own else name, dtype, shape)


def _outputs(tensor: Tensor, decision: Decision) -> Iterator[StoredTensor]:
    form = decision.weight.format
    axis = tensor.contraction if tensor.contracted else -1
    for part in stored_parts(decision, tensor.shape, axis):
        if not decision.weight.is_quantized:
            yield StoredTensor("", part.dtype, part.shape)
        elif form == "int4" and part.part == "codes":
            yield _packed(part)
        else:
            name = STORED_NAMES[form][part.part]
            yield StoredTensor("" if name == tensor.parameter else name, part.dtype, part.shape)


def _unstacked(tensor: Tensor, decision: Decision, stack: Stack) -> Iterator[StoredTensor]:
    """Each expert's weights under the names that they have where they are stored one by one."""
    _, *matrix = tensor.shape
    axis = tensor.contraction - 1
    rows, columns = matrix[1 - axis] // len(stack.parts), matrix[axis]
    single = replace(tensor, shape=(rows, columns), contracted=(1,), parameter="weight")
    for part in stack.parts:
        for stored in _outputs(single, decision):
            word = f"{braced(range(stack.experts))}.{part}.{stored.beside or 'weight'}"
            yield replace(stored, beside=word)


def _packed(codes: StoredPart) -> StoredTensor:
    """Four-bit codes as compressed-tensors packs them."""
    *rows, columns = codes.shape
    return StoredTensor("weight_packed", "I32", (*rows, -(-2 * columns // CODES_A_WORD)))
