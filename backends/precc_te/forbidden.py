"""Megatron arguments under which it would not run what the artifacts say, each with the reason."""

from __future__ import annotations

from precc.records import record
from precc_te.precision import Recipe

_ALL: frozenset[Recipe] = frozenset({"nvfp4", "mxfp8", "blockwise", "tensorwise"})
_FP4: frozenset[Recipe] = frozenset({"nvfp4"})


@record
class Forbidden:
    """One argument, the engine-wide modes under which it does harm, and what it does."""

    argument: str
    modes: frozenset[Recipe]
    why: str


FORBIDDEN: tuple[Forbidden, ...] = (
    Forbidden("--fp8-param-gather", _ALL, "a BF16 layer would run on a dequantized FP8 weight"),
    Forbidden("--fp4-param-gather", _ALL, "a BF16 layer would run on a dequantized FP4 weight"),
    Forbidden("--fp8-output-proj", _ALL, "the output layer would run in MXFP8"),
    Forbidden("--overlap-moe-expert-parallel-comm", _FP4, "that schedule never enters the FP4 autocast"),
    Forbidden("--use-transformer-engine-op-fuser", _ALL, "the fused MLP ignores the per-module recipes"),
    Forbidden("--mla-down-proj-fusion", _ALL, "q_a and kv_a become a layer of another name"),
)
"""From Megatron-Core's main branch at d98e8a64; the older modelled versions have none or the same of each."""


def forbidden_arguments(mode: Recipe) -> tuple[Forbidden, ...]:
    """Those that do harm under an engine-wide mode."""
    return tuple(each for each in FORBIDDEN if mode in each.modes)
