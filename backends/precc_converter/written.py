"""What the converter does for one tensor: what it reads, how it computes, what it writes.

The output names are those that SGLang's loader asks for in the method that serves the format (`fp8`, `mxfp8`,
`modelopt_fp4`, compressed-tensors `pack-quantized`); what they hold is in `precc.formats.stored_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

from precc import records
from precc.contract import Contract, Entry
from precc.contract.fold import braced
from precc.formats import FORMATS, Decision, Quantization, StoredPart, stored_parts
from precc.graph.forms import Form
from precc.graph.layouts import STACKED_PARTS
from precc.graph.model import ModelGraph, Tensor
from precc.records import record
from precc.syntax.words import Role
from precc_converter.stored import PARTS, numbers_of, stored_tensors

Action: TypeAlias = Literal["copy", "cast", "quantize", "dequantize", "requantize", "stack", "keep_fp8_as_mxfp8"]
"""`copy` keeps the bytes, of a low precision that is already what the contract decides its codes and its scales; `cast`
changes between 16 and 32 bits, `stack` puts experts together that are stored one by one, `requantize` goes over the
exact dequantized values, `keep_fp8_as_mxfp8` keeps the codes and repeats the power-of-two scale of each 128×128 block
(a source that declares such scales and stores others is an error when it is read)."""

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
"""The last word of each stored tensor's name, by format and part; what is not here is not quantized."""

SOURCE_BLOCK = (128, 128)
"""The blocks of FP8 sources that have any."""

MXFP4_STACK = Form("mxfp4", (1, 32))
"""The experts of gpt-oss. What is stored so is kept so where the contract decides it, and is the only MXFP4 written."""

BYTES = {"I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1, "I8": 1}
CODES_A_WORD = 8
"""Four-bit codes in one I32 of the compressed-tensors packing."""


class StoredTensor(NamedTuple):
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


@record
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


class Written(NamedTuple):
    """The converter's whole decision for one tensor.

    `axis` is the contraction axis that blocks run along, those of a source in low precision too, `group` the name
    under which tensors share one NVFP4 outer scale, and `form` how a source is stored that is not the bare weight; all
    are None where there is no such thing.
    """

    action: Action
    weight: Quantization
    axis: int | None
    group: str | None
    sources: tuple[StoredTensor, ...]
    outputs: tuple[StoredTensor, ...]
    stack: Stack | None = None
    form: Form | None = None

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
        shared += f", stored as {self.form}" if self.form else ""
        return f"{self.weight}{along}{shared} ({self.action} {sources} → {outputs})"


def written(entry: Entry, model: ModelGraph, apart: bool = False) -> Written:
    """This is what the converter does for one entry. Raises KeyError for a format or source that it lacks.

    `apart` is whether stacks that are not quantized are taken apart, too: see `parts_stacks`.
    """
    tensor, decision = entry.tensor, entry.decision
    weight, low = decision.weight, tensor.form.is_quantized or bool(tensor.form.apart)
    stack = stack_of(tensor) if (weight.is_quantized and not keeps_stack(entry)) or apart else None
    blocks = weight.is_quantized or low or stack is not None
    return Written(
        action=_action(tensor, weight, stack, has_power_of_two_scales(model)),
        weight=weight,
        axis=tensor.contraction if tensor.is_gemm and blocks else None,
        group=tensor.scale_group if _shares_outer_scale(weight) else None,
        sources=tuple(StoredTensor(*stored) for stored in stored_tensors(tensor)),
        outputs=tuple(_unstacked(tensor, decision, stack) if stack else _outputs(tensor, decision)),
        stack=stack,
        form=tensor.form if low else None,
    )


def parts_stacks(contract: Contract) -> bool:
    """Whether the stacks of a contract are taken apart: all of them, if one is quantized.

    A server's loader that has met one stack looks for no expert by itself any more, and what it then passes over stays
    as it was allocated.
    """
    return any(
        entry.decision.weight.is_quantized and stack_of(entry.tensor) and not keeps_stack(entry)
        for entry in contract.entries
    )


def keeps_stack(entry: Entry) -> bool:
    """Whether a stack of experts stays the MXFP4 that it is."""
    return entry.decision.weight.format == "mxfp4" and entry.tensor.form == MXFP4_STACK and bool(stack_of(entry.tensor))


def stack_of(tensor: Tensor) -> Stack | None:
    """How a tensor stacks a layer's experts; None for one that is no stack known here."""
    if tensor.parameter or tensor.role is not Role.ROUTED_EXPERTS or len(tensor.shape) != 3:
        return None
    parts = STACKED_PARTS.get(tensor.part)
    return Stack(tensor.shape[0], parts, tensor.interleaved) if parts else None


def keeps_input_scale(entry: Entry, model: ModelGraph) -> bool:
    """Whether the static scale of an input is in the source, beside a weight that stays as it is."""
    decision = entry.decision
    static = decision.input is not None and decision.input.static and decision.input.format == decision.weight.format
    held = any(PARTS[word] == "input_scale" for word in entry.tensor.form.words if word in PARTS)
    return static and held and written(entry, model).action == "copy"


def has_power_of_two_scales(model: ModelGraph) -> bool:
    """Whether an FP8 source declares its block scales to be powers of two (`scale_fmt: ue8m0`)."""
    return model.config.get("scale_fmt") == "ue8m0"


def _action(tensor: Tensor, weight: Quantization, stack: Stack | None, power_of_two: bool) -> Action:
    if not tensor.form.is_quantized:
        if weight.is_quantized:
            return "quantize"
        if tensor.form.apart:
            return "stack"
        return "copy" if tensor.dtype == weight.format else "cast"
    if not weight.is_quantized:
        return "dequantize"
    stored = numbers_of(tensor.form, tensor.shape[tensor.contraction])
    if stored.format == "fp8_block" and power_of_two:
        stored = records.replace(stored, scale="pow2")
        if weight.format == "mxfp8":
            return "keep_fp8_as_mxfp8"
    return "copy" if stored == weight and (stack is None or _splits(tensor, stored, stack)) else "requantize"


def _splits(tensor: Tensor, stored: Quantization, stack: Stack) -> bool:
    """Whether a stack can be taken apart as it is stored: no block of it lies in two of its weights, and what each of
    these has of its own (the shape of packed integers) is there."""
    if tensor.form.apart or stored.format == "int4":
        return bool(tensor.form.apart)
    high = stored.block[0] if stored.block else 1
    rows = tensor.shape[3 - tensor.contraction] // len(stack.parts)
    return high == 1 or len(stack.parts) == 1 or (rows % high == 0 and not stack.interleaved)


def _shares_outer_scale(weight: Quantization) -> bool:
    """An NVFP4 outer scale stands above blocks; FP8's own scale is its only one and never shared."""
    return FORMATS[weight.format].outer_scale and weight.block is not None


def _outputs(tensor: Tensor, decision: Decision) -> Iterator[StoredTensor]:
    form = decision.weight.format
    axis = tensor.contraction if tensor.contracted else -1
    if form == "mxfp4":
        yield from _kept_stack(tensor)
        return
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
            yield stored._replace(beside=word)


def _kept_stack(tensor: Tensor) -> Iterator[StoredTensor]:
    """The tensors of a stack of MXFP4 experts, as they are stored. Raises KeyError for what is no such stack."""
    if tensor.form != MXFP4_STACK or stack_of(tensor) is None:
        raise KeyError("mxfp4")
    yield from (StoredTensor(*stored) for stored in stored_tensors(tensor))


def _packed(codes: StoredPart) -> StoredTensor:
    """Four-bit codes as compressed-tensors packs them."""
    *rows, columns = codes.shape
    return StoredTensor("weight_packed", "I32", (*rows, -(-2 * columns // CODES_A_WORD)))
