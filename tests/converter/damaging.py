"""A case whose source is damaged by a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from converter.checkpoints import Weights, load_checkpoint, write_shards
from converter.conversions import Case


def changed(made: Case, change: Callable[[Weights], object]) -> Case:
    """The case with other weights in its source."""
    weights = load_checkpoint(made.source)
    change(weights)
    write_shards(made.source, weights, 2)
    return made


def first_shard(made: Case) -> Path:
    """The first of the two shards of its source."""
    return made.source / "model-00001-of-00002.safetensors"
