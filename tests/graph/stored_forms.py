"""Checkpoints in every layout of low precision: what each tool stores for a matrix, written out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from graph.checkpoint_files import Entry

from precc.graph import ModelGraph
from precc.graph.model import Tensor

Entries = dict[str, Entry]


@dataclass(frozen=True)
class Written:
    """What a tool stores for a matrix of rows and columns, and as what it is read: dtype, block and format."""

    entries: Callable[[int, int], Entries]
    dtype: str
    block: tuple[int, int] | None
    format: str


def _nvfp4(rows: int, columns: int) -> Entries:
    return {
        "weight": ("U8", (rows, columns // 2)),
        "weight_scale": ("F8_E4M3", (rows, columns // 16)),
        "weight_scale_2": ("F32", ()),
    }


def _packed_nvfp4(rows: int, columns: int) -> Entries:
    return {
        "weight_packed": ("U8", (rows, columns // 2)),
        "weight_scale": ("F8_E4M3", (rows, columns // 16)),
        "weight_global_scale": ("F32", (1,)),
    }


def _int4(group: int, dtype: str = "BF16") -> Callable[[int, int], Entries]:
    return lambda rows, columns: {
        "weight_packed": ("I32", (rows, columns // 8)),
        "weight_scale": (dtype, (rows, ceil(columns / group) if group else 1)),
        "weight_shape": ("I64", (2,)),
    }


def _gptq(rows: int, columns: int) -> Entries:
    return {
        "qweight": ("I32", (columns // 8, rows)),
        "qzeros": ("I32", (ceil(columns / 128), rows // 8)),
        "scales": ("F16", (ceil(columns / 128), rows)),
        "g_idx": ("I32", (columns,)),
    }


def _awq(rows: int, columns: int) -> Entries:
    return {
        "qweight": ("I32", (columns, rows // 8)),
        "qzeros": ("I32", (ceil(columns / 128), rows // 8)),
        "scales": ("F16", (ceil(columns / 128), rows)),
    }


def _tiles(rows: int, columns: int) -> tuple[int, int]:
    return ceil(rows / 128), ceil(columns / 128)


def _with(entries: Callable[[int, int], Entries], more: Callable[[int, int], Entries]) -> Callable[[int, int], Entries]:
    return lambda rows, columns: {**entries(rows, columns), **more(rows, columns)}


def _codes(scale: str, dtype: str, shape: Callable[[int, int], tuple[int, ...]]) -> Callable[[int, int], Entries]:
    return lambda rows, columns: {"weight": ("F8_E4M3", (rows, columns)), scale: (dtype, shape(rows, columns))}


def _input(rows: int, columns: int) -> Entries:
    return {"input_scale": ("F32", ())}


WRITTEN: Mapping[str, Written] = {
    "fp8 blocks": Written(_codes("weight_scale_inv", "F32", _tiles), "fp8", (128, 128), "fp8_block"),
    "fp8 blocks, scales in bf16": Written(_codes("weight_scale_inv", "BF16", _tiles), "fp8", (128, 128), "fp8_block"),
    "fp8 blocks, scales in e8m0": Written(
        _codes("weight_scale_inv", "F8_E8M0", _tiles), "fp8", (128, 128), "fp8_block"
    ),
    "fp8 blocks of compressed-tensors": Written(_codes("weight_scale", "F32", _tiles), "fp8", (128, 128), "fp8_block"),
    "fp8 blocks under `scale`": Written(_codes("scale", "F8_E8M0", _tiles), "fp8", (128, 128), "fp8_block"),
    "fp8": Written(_codes("weight_scale", "F32", lambda rows, columns: ()), "fp8", None, "fp8"),
    "fp8 with static inputs": Written(
        _with(_codes("weight_scale", "F32", lambda rows, columns: (1,)), _input), "fp8", None, "fp8"
    ),
    "fp8 channels": Written(_codes("weight_scale", "F32", lambda rows, columns: (rows, 1)), "fp8", (1, 0), "fp8"),
    "fp8 channels, flat": Written(_codes("weight_scale", "BF16", lambda rows, columns: (rows,)), "fp8", (1, 0), "fp8"),
    "mxfp8": Written(_codes("weight_scale_inv", "U8", lambda r, c: (r, c // 32)), "mxfp8", (1, 32), "mxfp8"),
    "mxfp8, scales in e8m0": Written(
        _codes("weight_scale_inv", "F8_E8M0", lambda r, c: (r, c // 32)), "mxfp8", (1, 32), "mxfp8"
    ),
    "mxfp8 of ModelOpt": Written(_codes("weight_scale", "U8", lambda r, c: (r, c // 32)), "mxfp8", (1, 32), "mxfp8"),
    "nvfp4": Written(_nvfp4, "nvfp4", (1, 16), "nvfp4"),
    "nvfp4 with static inputs": Written(_with(_nvfp4, _input), "nvfp4", (1, 16), "nvfp4"),
    "nvfp4 of compressed-tensors": Written(_packed_nvfp4, "nvfp4", (1, 16), "nvfp4"),
    "nvfp4 of compressed-tensors with static inputs": Written(
        _with(_packed_nvfp4, lambda rows, columns: {"input_global_scale": ("F32", (1,))}), "nvfp4", (1, 16), "nvfp4"
    ),
    "mxfp4": Written(
        lambda rows, columns: {
            "weight_packed": ("U8", (rows, columns // 2)),
            "weight_scale": ("U8", (rows, columns // 32)),
        },
        "mxfp4",
        (1, 32),
        "mxfp4",
    ),
    "mxfp4 under `scale`": Written(
        lambda rows, columns: {
            "weight": ("I8", (rows, columns // 2)),
            "scale": ("F8_E8M0", (rows, columns // 32)),
        },
        "mxfp4",
        (1, 32),
        "mxfp4",
    ),
    "int4": Written(_int4(32), "int4", (1, 32), "int4"),
    "int4 in groups of 128": Written(_int4(128, "F16"), "int4", (1, 128), "int4"),
    "int4 channels": Written(_int4(0), "int4", (1, 0), "int4"),
    "int4 with zero points": Written(
        _with(_int4(32), lambda rows, columns: {"weight_zero_point": ("I32", (rows // 8, columns // 32))}),
        "int4",
        (1, 32),
        "int4",
    ),
    "int4 in the order of activations": Written(
        _with(_int4(128), lambda rows, columns: {"weight_g_idx": ("I32", (columns,))}), "int4", (1, 128), "int4"
    ),
    "int8": Written(
        lambda rows, columns: {"weight": ("I8", (rows, columns)), "weight_scale": ("BF16", (rows, 1))},
        "int8",
        (1, 0),
        "int8",
    ),
    "gptq": Written(_gptq, "int4", (1, 128), "int4"),
    "awq": Written(_awq, "int4", (1, 128), "int4"),
}


def quantized(tensor: Tensor) -> bool:
    """Whether the checkpoints here store a tensor in low precision: all but what is protected."""
    return tensor.is_gemm and not tensor.protected and tensor.parameter == "weight"


def in_layout(graph: ModelGraph, entries: Entries, written: Written) -> Entries:
    """The stored tensors of an unquantized checkpoint, its weights stored as a tool does."""
    low = {module for tensor in graph.tensors if quantized(tensor) for module in tensor.modules()}
    made: Entries = {}
    for name, entry in entries.items():
        module, _, word = name.rpartition(".")
        if word == "weight" and module in low:
            rows, columns = entry[1]
            made |= {f"{module}.{own}": one for own, one in written.entries(rows, columns).items()}
        else:
            made[name] = entry
    return made
