"""From a rank's own numbers to the model's: pipeline stages number their layers, expert ranks their experts, from 0.

Megatron-Core knows the answers itself (`layer.layer_number - 1`, `mlp.local_expert_indices`); these functions are for
names that come without their modules. They hold for equal stages; with a layout of one's own, pass `layer_number`.
"""

from __future__ import annotations

import re

_LAYER = re.compile(r"^(decoder\.layers\.)(\d+)(?=\.)")
_EXPERT = re.compile(r"(\.experts\.(?:local_experts\.|linear_fc[12]\.(?:weight|bias)))(\d+)(?=\.|$)")


def first_layer(layers: int, stages: int = 1, stage: int = 0, chunks: int = 1, chunk: int = 0) -> int:
    """This is the model's number of a pipeline stage's layer 0: of its virtual chunk's, where it has several.

    Chunks go round the stages: all stages' chunk 0, then all stages' chunk 1. Raises ValueError where layers do not
    divide into equal chunks, or there is no such stage or chunk.
    """
    each, left = divmod(layers, stages * chunks)
    if left:
        raise ValueError(f"{layers} layers are not {stages} stages of {chunks} equal chunks; use layer_number")
    _within(stage, stages, "stage")
    _within(chunk, chunks, "chunk")
    return (chunk * stages + stage) * each


def first_expert(experts: int, ranks: int = 1, rank: int = 0) -> int:
    """This is the model's number of an expert-parallel rank's expert 0. Raises ValueError as `first_layer` does."""
    each, left = divmod(experts, ranks)
    if left:
        raise ValueError(f"{experts} experts do not divide into {ranks} ranks")
    _within(rank, ranks, "expert-parallel rank")
    return rank * each


def global_name(name: str, first_layer: int = 0, first_expert: int = 0) -> str:
    """This is a rank's parameter name with the model's numbers. MTP layers are on one stage: they keep theirs."""
    name = _LAYER.sub(lambda found: f"{found[1]}{int(found[2]) + first_layer}", name)
    return _EXPERT.sub(lambda found: f"{found[1]}{int(found[2]) + first_expert}", name)


def _within(number: int, count: int, what: str) -> None:
    if not 0 <= number < count:
        raise ValueError(f"there is no {what} {number}: they are numbered 0 to {count - 1}")
