"""The arithmetic of a conversion, as one pure function: a unit's source tensors → its output tensors.

The converter calls it on what it reads from files, the live export on what a trainer hands over; so they write the same
bytes. Nothing here knows of files, processes or devices: outputs are where the sources are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from precc.formats import Quantization
from precc.formats.storage import Part
from precc.quant import NotFinite, amax, quantize
from precc.quant.elements import from_e2m1, from_e8m0
from precc.quant.packing import unpack_e2m1
from precc_converter.conversion.findings import NOT_FINITE, UNLIKE, WrongValues
from precc_converter.conversion.units import Member, Unit, beside
from precc_converter.written import SOURCE_BLOCK, STORED_NAMES, Stack, Written

Tensors: TypeAlias = Mapping[str, Tensor]

DTYPES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
    "U8": torch.uint8,
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
    shared = shared_amax(unit, sources) if len(unit.members) > 1 else None
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
    """The bytes as they are; block scales as FP32, which holds each of their dtypes exactly."""
    weight, *scales = (sources[name] for name, _ in member.sources)
    own, *beside_it = (name for name, _ in member.outputs)
    yield own, weight
    for name, scale in zip(beside_it, scales, strict=True):
        if member.made.weight.scale == "pow2":
            _exponents(scale, name)
        yield name, scale.to(torch.float32)


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
    weight = _weight(member, sources, DTYPES[dtype])
    for expert in range(made.stack.experts):
        for part, single in _parts(_matrix(weight[expert], made), made.stack):
            yield beside(member.name, f"{expert}.{part}.weight"), _as(dtype, single, member.name).contiguous()


def _dequantized(member: Member, sources: Tensors, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    ((_, stored),) = member.outputs
    yield member.name, _weight(member, sources, DTYPES[stored.dtype])


def _quantized(member: Member, sources: Tensors, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """A weight through its quantizer; of a stack, each expert's in turn."""
    weight, made = _weight(member, sources), member.made
    if made.stack is None:
        assert made.axis is not None
        parts = quantize(weight, made.weight, amax=amax, axis=made.axis)
        yield from _named(parts, made.weight, member.name)
        return
    for expert in range(made.stack.experts):
        name = beside(member.name, f"{expert}.{{part}}.weight")
        yield from _expert(_matrix(weight[expert], made), name, made, None if amax is None else amax[expert])


def _expert(matrix: Tensor, name: str, made: Written, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """The weights of one expert of a stack; gate and up share their outer scale. `name` has a place for the part."""
    assert made.stack is not None
    shared = amax if amax is not None else _matrix_amax(matrix, made)
    for part, weight in _parts(matrix, made.stack):
        yield from _named(quantize(weight, made.weight, amax=shared), made.weight, name.format(part=part))


def _kept(member: Member, sources: Tensors, amax: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """FP8 codes as they are; the power-of-two scale of each block repeated as E8M0 for its rows and groups of 32.

    As the trainer's own FP8 fast path does: no value changes.
    """
    (own, _), (scale_name, _) = member.sources
    codes = sources[own]
    if bool((codes.view(torch.uint8) & 0x7F == 0x7F).any()):
        raise WrongValues(NOT_FINITE, own, "holds NaN", _REPAIR)
    rows, columns = codes.shape[-2:]
    high, wide = SOURCE_BLOCK
    scales = _exponents(sources[scale_name], scale_name)
    scales = scales.repeat_interleave(high, -2).repeat_interleave(wide // MX_BLOCK, -1)
    scales = scales[..., :rows, : -(-columns // MX_BLOCK)].contiguous()
    yield from _named({"codes": codes, "block_scale": scales}, member.made.weight, own)


_ACTIONS: dict[str, Callable[[Member, Tensors, Tensor | None], Iterator[tuple[str, Tensor]]]] = {
    "copy": _copied,
    "cast": _cast,
    "dequantize": _dequantized,
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


def _weight(member: Member, sources: Tensors, dtype: torch.dtype | None = None) -> Tensor:
    """The numbers of a source: as stored, or codes times the scale of their block in FP32, rounded to `dtype`.

    Without one, to what holds them exactly: FP32 for FP8, BF16 for MXFP4.
    """
    (own, stored), *scales = member.sources
    codes = sources[own]
    if not scales:
        return codes
    ((name, _),) = scales
    if stored.dtype == "U8":
        try:
            return _from_mxfp4(codes, sources[name], dtype or torch.bfloat16, transposed=member.made.axis == 1)
        except OverflowError as problem:
            raise WrongValues(NOT_FINITE, name, str(problem), _REPAIR) from None
    dtype = dtype or torch.float32
    scale = sources[name].to(torch.float32)
    if not bool(scale.isfinite().all()):
        raise WrongValues(NOT_FINITE, name, "holds NaN or Inf", _REPAIR)
    high, wide = SOURCE_BLOCK
    weight = torch.empty(codes.shape, dtype=dtype, device=codes.device)
    for at in range(scale.shape[-2]):
        rows = codes[..., at * high : (at + 1) * high, :].to(torch.float32)
        rows *= scale[..., at : at + 1, :].repeat_interleave(wide, -1)[..., : rows.shape[-1]]
        weight[..., at * high : (at + 1) * high, :] = rows
    return weight


def _from_mxfp4(blocks: Tensor, scales: Tensor, dtype: torch.dtype, transposed: bool) -> Tensor:
    """MXFP4 of [experts, output, groups, 16] bytes as the stacked weight in its own order of axes, expert by expert.

    Raises OverflowError for NaN and what is beyond the dtype.
    """
    experts, output, groups, _ = blocks.shape
    shape = (groups * MX_BLOCK, output) if transposed else (output, groups * MX_BLOCK)
    weight = torch.empty((experts, *shape), dtype=dtype, device=blocks.device)
    for expert in range(experts):
        values = from_e2m1(unpack_e2m1(blocks[expert])) * from_e8m0(scales[expert])[..., None]
        matrix = values.flatten(1)
        weight[expert] = matrix.t() if transposed else matrix
        if not bool(weight[expert].isfinite().all()):
            raise OverflowError(f"holds NaN, or scales numbers of expert {expert} beyond {dtype}")
    return weight


def _matrix(stored: Tensor, made: Written) -> Tensor:
    """One expert's matrix with the contraction axis last, whatever its order in the stack."""
    return stored if made.axis == 2 else stored.t()


def _parts(matrix: Tensor, stack: Stack) -> Iterator[tuple[str, Tensor]]:
    """The weights that lie in one expert's matrix along its rows: one after the other, or row by row in turn."""
    count = len(stack.parts)
    split = [matrix[at::count] for at in range(count)] if stack.interleaved else matrix.chunk(count)
    return zip(stack.parts, split, strict=True)


def _amax(member: Member, sources: Tensors) -> Tensor:
    weight, made = _weight(member, sources), member.made
    try:
        return amax(weight, made.weight, axis=made.axis if made.axis is not None else -1)
    except NotFinite as problem:
        raise _not_finite(member, problem) from None


def _matrix_amax(matrix: Tensor, made: Written) -> Tensor | None:
    """The amax of all that an expert's matrix holds; None where nothing is shared."""
    assert made.stack is not None
    shared = len(made.stack.parts) > 1 and made.weight.scope == "per_tensor" and made.weight.block is not None
    return amax(matrix, made.weight) if shared else None


def _exponents(scale: Tensor, name: str) -> Tensor:
    """The E8M0 bytes of scales that are powers of two. Raises NotConverted with P601 for one that is none."""
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


_REPAIR = "NaN and Inf have no quantized form: repair the source"


def _not_finite(member: Member, problem: NotFinite) -> WrongValues:
    return WrongValues(NOT_FINITE, member.name, f"holds {problem.described}", _REPAIR)
