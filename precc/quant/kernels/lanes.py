"""The few operations that numba has no word for, as the instructions of LLVM that they are.

A source is a contiguous matrix as one axis of bits: int16 for BF16, int32 for FP32. `even` and `odd` read a pair of
elements, so that two codes become one store; `peak` is the largest magnitude of a block in one reduction. numba
computes in int64 otherwise, which halves the lanes of a vector register.
"""

# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-def, no-any-return"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

instruction: Callable[[Any], Any] = intrinsic
FIRST_NOT_FINITE = 0x7F80_0000
"""The bits of FP32's Inf; those of a NaN are larger."""

_I16, _I32, _F32, _I64 = ir.IntType(16), ir.IntType(32), ir.FloatType(), ir.IntType(64)


@instruction
def bits(typing_context, number):
    """FP32 as the int32 with the same bits."""
    return types.int32(types.float32), lambda _context, build, _signature, given: build.bitcast(given[0], _I32)


@instruction
def number(typing_context, bits):
    """An int32 as the FP32 with the same bits."""
    return types.float32(types.int32), lambda _context, build, _signature, given: build.bitcast(given[0], _F32)


@instruction
def larger(typing_context, left, right):
    """The larger of two int32."""

    def code(_context, build, _signature, given):
        return build.select(build.icmp_signed(">", *given), *given)

    return types.int32(types.int32, types.int32), code


@instruction
def smaller(typing_context, left, right):
    """The smaller of two int32."""

    def code(_context, build, _signature, given):
        return build.select(build.icmp_signed("<", *given), *given)

    return types.int32(types.int32, types.int32), code


@instruction
def even(typing_context, source, pair):
    """Element 2·pair, as FP32."""
    return types.float32(source, types.intp), _element(source, 0)


@instruction
def odd(typing_context, source, pair):
    """Element 2·pair + 1, as FP32."""
    return types.float32(source, types.intp), _element(source, 1)


@instruction
def peak16(typing_context, source, start):
    """The largest magnitude of 16 elements, as the bits of an FP32; NaN is larger than Inf."""
    return types.int32(source, types.intp), _peak(source, 16)


@instruction
def peak32(typing_context, source, start):
    """That of 32 elements."""
    return types.int32(source, types.intp), _peak(source, 32)


@instruction
def splat8(typing_context, target, start, value):
    """This stores one FP32 eight times."""
    return types.void(target, types.intp, types.float32), _splat(target, 8)


@instruction
def splat16(typing_context, target, start, value):
    """This stores one FP32 sixteen times."""
    return types.void(target, types.intp, types.float32), _splat(target, 16)


def _element(source: Any, place: int) -> Any:
    """A pair of BF16 is one word: its low half shifted up, or its high half masked, is an FP32."""

    def narrow(context, build, signature, given):
        word = build.load(_address(context, build, source, given[0], _I32, given[1]), align=2)
        return build.bitcast(build.and_(word, _I32(0xFFFF0000)) if place else build.shl(word, _I32(16)), _F32)

    def wide(context, build, signature, given):
        column = build.add(build.mul(given[1], _I64(2)), _I64(place))
        return build.load(_address(context, build, source, given[0], _F32, column), align=4)

    return narrow if source.dtype == types.int16 else wide


def _peak(source: Any, count: int) -> Any:
    lane, sign = (_I16, 0x7FFF) if source.dtype == types.int16 else (_I32, 0x7FFFFFFF)
    vector = ir.VectorType(lane, count)
    name = f"llvm.vector.reduce.umax.v{count}i{lane.width}"

    def code(context, build, signature, given):
        start = _address(context, build, source, given[0], lane, given[1])
        loaded = build.load(build.bitcast(start, ir.PointerType(vector)), align=lane.width // 8)
        magnitudes = build.and_(loaded, ir.Constant(vector, [sign] * count))
        reduce = build.module.declare_intrinsic(name, fnty=ir.FunctionType(lane, [vector]))
        top = build.call(reduce, [magnitudes])
        return build.shl(build.zext(top, _I32), _I32(16)) if lane == _I16 else top

    return code


def _splat(target: Any, count: int) -> Any:
    vector = ir.VectorType(_F32, count)

    def code(context, build, signature, given):
        start = _address(context, build, target, given[0], _F32, given[1])
        alone = build.insert_element(ir.Constant(vector, ir.Undefined), given[2], _I32(0))
        all_lanes = ir.Constant(ir.VectorType(_I32, count), [0] * count)
        build.store(
            build.shuffle_vector(alone, ir.Constant(vector, ir.Undefined), all_lanes),
            build.bitcast(start, ir.PointerType(vector)),
            align=4,
        )
        return context.get_dummy_value()

    return code


def _address(context, build, source, array, kind, index) -> Any:
    """Where the `index`th `kind` of an array lies."""
    view = context.make_array(source)(context, build, array)
    return build.gep(build.bitcast(view.data, ir.PointerType(kind)), [index])
