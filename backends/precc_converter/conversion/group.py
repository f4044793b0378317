"""The arithmetic of a conversion, as one pure function: a unit's source tensors → its output tensors.

The converter calls it on what it reads from files, the live export on what a trainer hands over; so they write the same
bytes. Nothing here knows of files, processes or devices: outputs are where the sources are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from precc.formats import Quantization
from precc.formats.storage import Part
from precc.quant import NotFinite, amax, quantize
from precc.quant.elements import from_e8m0
from precc_converter.conversion.findings import NOT_FINITE, UNLIKE, WrongValues
from precc_converter.conversion.numbers import REPAIR, Parts, Tensors, matrices, stored, whole
from precc_converter.conversion.units import Member, Unit, beside, named_parts
from precc_converter.written import SOURCE_BLOCK, STORED_NAMES, Stack, Written

DTYPES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I32": torch.int32,
    "I64": torch.int64,
}
"""The dtypes of safetensors that the converter reads or writes."""

MX_BLOCK = 32
E8M0_BIAS = 127


def outputs_of(unit: Unit, sources: Tensors) -> dict[str, Tensor]:
    """Everything that a unit becomes, by stored name. Its members share one outer scale if they are several.

    `sources` holds `unit.source_names`. Raises NotConverted: P602 for NaN or Inf, P601 for a block scale that is none.
    """
    shared = shared_amax(unit, sources) if len(unit.members) > 1 and not unit.is_kept else None
    made: dict[str, Tensor] = {}
    for member in unit.members:
        made |= outputs(member, sources, shared)
    return made


def shared_amax(unit: Unit, sources: Tensors) -> Tensor:
    """What the outer scale of several members is made of: FP32, one value, or one an expert of a stack.

    Raises NotConverted with P602.
    """
    found = [_amax(member, sources) for member in unit.members]
    return torch.stack(found).amax(0)


def outputs(member: Member, sources: Tensors, amax: Tensor | None = None) -> dict[str, Tensor]:
    """What one member becomes, by stored name; `amax` is what its outer scale is made of where it is shared."""
    made = member.made
    action = _taken_apart if made.stack and not made.weight.is_quantized else _ACTIONS[made.action]
    try:
        return dict(action(member, sources, amax))
    except NotFinite as problem:
        raise _not_finite(member, problem) from None


def _copied(member: Member, sources: Tensors, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """The bytes as they are; scales that are decided in FP32 as that, which holds each of their dtypes exactly."""
    made = member.made
    if made.form is None or (member.is_stack and made.stack is None):
        yield from ((name, sources[name]) for name, _ in member.sources)
        return
    if made.weight.scale == "pow2":
        _check_exponents(member, sources)
    for expert, weights in enumerate(stored(member, sources)):
        for name, parts in _stored_apart(member, expert, weights):
            yield from _named(_as_decided(parts, made), made.weight, name)


def _stored_apart(member: Member, expert: int, weights: list[Parts]) -> Iterator[tuple[str, Parts]]:
    """The weights that stored parts are of, by name: those of a stack's expert, or the one."""
    stack = member.made.stack
    if stack is None:
        yield member.name, weights[0]
        return
    split = weights if len(weights) > 1 else [_rows_of(weights[0], at, stack) for at in range(len(stack.parts))]
    for part, parts in zip(stack.parts, split, strict=True):
        yield beside(member.name, f"{expert}.{part}.weight"), parts


def _rows_of(parts: Parts, at: int, stack: Stack) -> Parts:
    """The stored parts of one of the weights in a matrix; a scale of the whole matrix is that of each."""
    count = len(stack.parts)
    return {part: _split(value, stack, count)[at] if value.ndim else value for part, value in parts.items()}


def _as_decided(parts: Parts, made: Written) -> Parts:
    """Stored parts in the dtypes of the contract, with the scale of an input where that is decided."""
    wanted: Parts = dict(parts)
    if not made.outputs[-1].beside.endswith(STORED_NAMES[made.weight.format].get("input_scale", "none")):
        wanted.pop("input_scale", None)
    if made.weight.format == "fp8_block":
        scale = wanted["block_scale"]
        wanted["block_scale"] = from_e8m0(scale) if scale.dtype == torch.uint8 else scale.to(torch.float32)
    if "shape" in wanted:
        wanted["shape"] = wanted["shape"].to(torch.int64)
    return wanted


def _cast(member: Member, sources: Tensors, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    ((_, stored),) = member.outputs
    yield member.name, _as(stored.dtype, sources[member.name], member.name)


def _as(dtype: str, weight: Tensor, name: str) -> Tensor:
    """A weight in another dtype, in which none of its numbers is infinite."""
    made = weight.to(DTYPES[dtype])
    if dtype == "F16" and bool((made.isinf() & weight.isfinite()).any()):
        raise WrongValues(NOT_FINITE, name, "holds values beyond FP16", "keep this tensor in bf16 or fp32")
    return made


def _taken_apart(member: Member, sources: Tensors, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """A stack's weights, expert by expert, in 16 or 32 bits."""
    made, dtype = member.made, member.made.outputs[0].dtype
    assert made.stack is not None
    for expert, matrix in enumerate(matrices(member, sources, DTYPES[dtype])):
        for part, single in _weights(matrix, made.stack):
            yield beside(member.name, f"{expert}.{part}.weight"), _as(dtype, single, member.name).contiguous()


def _dequantized(member: Member, sources: Tensors, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    ((_, stored),) = member.outputs
    yield member.name, whole(member, sources, DTYPES[stored.dtype])


def _quantized(member: Member, sources: Tensors, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """A weight through its quantizer; of a stack, each expert's in turn."""
    made = member.made
    for expert, matrix in enumerate(matrices(member, sources)):
        if made.stack is None:
            yield from _named(quantize(matrix, made.weight, amax=amax), made.weight, member.name)
        else:
            name = beside(member.name, f"{expert}.{{part}}.weight")
            yield from _expert(matrix, name, made, None if amax is None else amax[expert])


def _expert(matrix: Tensor, name: str, made: Written, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """The weights of one expert of a stack; gate and up share their outer scale. `name` has a place for the part."""
    assert made.stack is not None
    shared = amax if amax is not None else _matrix_amax(matrix, made)
    for part, weight in _weights(matrix, made.stack):
        yield from _named(quantize(weight, made.weight, amax=shared), made.weight, name.format(part=part))


def _kept(member: Member, sources: Tensors, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """FP8 codes as they are; the power-of-two scale of each block repeated as E8M0 for its rows and groups of 32.

    As the trainer's own FP8 fast path does: no value changes.
    """
    _check_exponents(member, sources)
    for expert, weights in enumerate(stored(member, sources)):
        repeated = [_in_groups(parts, member) for parts in weights]
        for name, parts in _stored_apart(member, expert, repeated):
            yield from _named(parts, member.made.weight, name)


def _in_groups(parts: Parts, member: Member) -> Parts:
    """FP8 in 128×128 blocks as MXFP8. Raises NotConverted with P602 for NaN."""
    codes = parts["codes"]
    if bool((codes.view(torch.uint8) & 0x7F == 0x7F).any()):
        raise WrongValues(NOT_FINITE, member.name, "holds NaN", REPAIR)
    rows, columns = codes.shape
    high, wide = SOURCE_BLOCK
    scales = _exponents(parts["block_scale"], member.name)
    scales = scales.repeat_interleave(high, -2).repeat_interleave(wide // MX_BLOCK, -1)
    return {"codes": codes, "block_scale": scales[:rows, : -(-columns // MX_BLOCK)]}


_ACTIONS: dict[str, Callable[[Member, Tensors, Tensor | None], Iterator[tuple[str, Tensor]]]] = {
    "copy": _copied,
    "cast": _cast,
    "dequantize": _dequantized,
    "stack": _dequantized,
    "quantize": _quantized,
    "requantize": _quantized,
    "keep_fp8_as_mxfp8": _kept,
}


def _named(parts: Mapping[Part, Tensor], weight: Quantization, name: str) -> Iterator[tuple[str, Tensor]]:
    """A weight's parts under the names that they are stored by."""
    words = STORED_NAMES[weight.format]
    own = name.rpartition(".")[2]
    for part, tensor in parts.items():
        yield (name if words[part] == own else beside(name, words[part])), tensor


def _weights(matrix: Tensor, stack: Stack) -> Iterator[tuple[str, Tensor]]:
    """The weights that lie in one expert's matrix along its rows."""
    return zip(stack.parts, _split(matrix, stack, len(stack.parts)), strict=True)


def _split(rows: Tensor, stack: Stack, count: int) -> Sequence[Tensor]:
    """Rows that stand one part after the other, or row by row in turn."""
    return [rows[at::count] for at in range(count)] if stack.interleaved else rows.chunk(count)


def _amax(member: Member, sources: Tensors) -> Tensor:
    """Of one weight, or one an expert."""
    try:
        found = [amax(matrix, member.made.weight) for matrix in matrices(member, sources)]
    except NotFinite as problem:
        raise _not_finite(member, problem) from None
    return torch.stack(found) if member.is_stack else found[0]


def _matrix_amax(matrix: Tensor, made: Written) -> Tensor | None:
    """The amax of all that an expert's matrix holds; None where nothing is shared."""
    assert made.stack is not None
    shared = len(made.stack.parts) > 1 and made.weight.scope == "per_tensor" and made.weight.block is not None
    return amax(matrix, made.weight) if shared else None


def _check_exponents(member: Member, sources: Tensors) -> None:
    """This raises NotConverted with P601 for a block scale that is no power of two."""
    for name, part in named_parts(member):
        if part == "block_scale":
            _exponents(sources[name], name)


def _exponents(scale: Tensor, name: str) -> Tensor:
    """The E8M0 bytes of scales that are powers of two. Raises NotConverted with P601 for one that is none."""
    if scale.dtype == torch.uint8:
        return scale
    mantissa, exponent = torch.frexp(scale.to(torch.float32))
    biased = exponent.to(torch.int32) - 1 + E8M0_BIAS
    wrong = (mantissa != 0.5) | (biased < 0) | (biased > 2 * E8M0_BIAS)
    if bool(wrong.any()):
        value = float(scale.to(torch.float32)[wrong][0])
        raise WrongValues(
            UNLIKE,
            name,
            f"holds {value!r}, which is no power of two, though the configuration declares `scale_fmt: ue8m0`",
            "take that line out of the source's `config.json` and compile the policy again",
        )
    return biased.to(torch.uint8)


def _not_finite(member: Member, problem: NotFinite) -> WrongValues:
    return WrongValues(NOT_FINITE, member.name, f"holds {problem.described}", REPAIR)
