"""The table of formats: one entry each, and nothing else to touch when one is added."""

from __future__ import annotations

from typing import Literal, TypeAlias

from precc.records import record

Scope: TypeAlias = Literal["per_tensor", "per_token", "per_channel"]
SCOPES: tuple[Scope, ...] = ("per_tensor", "per_token", "per_channel")

Block: TypeAlias = tuple[int, int]
"""Rows (output axis) × columns (contraction axis) that share one scale."""


@record
class Format:
    """One number format.

    `bits` are those of one element. Blocks are (rows, columns), columns along the contraction axis; None means
    no scale below the outer one. `groups` are the group sizes the author may choose instead of a fixed block.
    `block_scale` is the type of the block scale: `e8m0`, `e4m3`, `bf16`, `fp32` or `pow2` (a power of two stored
    as FP32). `outer_scale` says whether an FP32 scale stands above the blocks (or alone, without blocks).
    `weight_scope` and `input_scope` are the scopes when the author names none; None where there is no such scale.
    """

    name: str
    bits: int
    element: str
    weight_block: Block | None = None
    input_block: Block | None = None
    block_scale: str | None = None
    outer_scale: bool = False
    weight_scope: Scope | None = None
    input_scope: Scope | None = None
    weight_scopes: tuple[Scope, ...] = ()
    input_scopes: tuple[Scope, ...] = ()
    groups: tuple[int, ...] = ()
    weight_only: bool = False
    summary: str = ""

    @property
    def is_quantized(self) -> bool:
        return self.bits < 16


_ENTRIES = (
    Format("bf16", 16, "BF16", summary="unquantized; what every tensor has until a rule says otherwise"),
    Format("fp16", 16, "FP16", summary="unquantized half precision"),
    Format("fp32", 32, "FP32", summary="unquantized single precision"),
    Format(
        "fp8",
        8,
        "E4M3",
        outer_scale=True,
        weight_scope="per_tensor",
        input_scope="per_tensor",
        weight_scopes=("per_tensor", "per_channel"),
        input_scopes=("per_tensor", "per_token"),
        summary="E4M3 with one FP32 scale a tensor, channel or token",
    ),
    Format(
        "fp8_block",
        8,
        "E4M3",
        weight_block=(128, 128),
        input_block=(1, 128),
        block_scale="pow2",
        summary="DeepSeek-style E4M3 in 128×128 weight blocks and 1×128 input blocks",
    ),
    Format(
        "mxfp8",
        8,
        "E4M3",
        weight_block=(1, 32),
        input_block=(1, 32),
        block_scale="e8m0",
        summary="OCP MX E4M3, one E8M0 scale for 32 elements along the contraction axis",
    ),
    Format(
        "mxfp4",
        4,
        "E2M1",
        weight_block=(1, 32),
        input_block=(1, 32),
        block_scale="e8m0",
        summary="OCP MX E2M1, one E8M0 scale for 32 elements along the contraction axis",
    ),
    Format(
        "nvfp4",
        4,
        "E2M1",
        weight_block=(1, 16),
        input_block=(1, 16),
        block_scale="e4m3",
        outer_scale=True,
        weight_scope="per_tensor",
        input_scope="per_token",
        weight_scopes=("per_tensor",),
        input_scopes=("per_token", "per_tensor"),
        summary="E2M1, one E4M3 scale for 16 elements and an FP32 scale a tensor or token above",
    ),
    Format(
        "int8",
        8,
        "INT8",
        block_scale="bf16",
        weight_block=(1, 128),
        groups=(32, 64, 128),
        weight_only=True,
        summary="symmetric integers with one BF16 scale a group",
    ),
    Format(
        "int4",
        4,
        "INT4",
        block_scale="bf16",
        weight_block=(1, 32),
        groups=(32, 64, 128),
        weight_only=True,
        summary="symmetric integers with one BF16 scale a group",
    ),
)

FORMATS: dict[str, Format] = {entry.name: entry for entry in _ENTRIES}
