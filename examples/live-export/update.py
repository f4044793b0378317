"""One weight update of a rollout server, from a trainer's buckets: the part to copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor

from precc_converter import LiveExporter
from precc_converter.live import Session


class Engine(Protocol):
    """The three calls of `sglang.Engine` (0.5.23); each answers whether it succeeded, and with a message."""

    def begin_weight_update(self, selector: str = "all") -> tuple[bool, str]: ...

    def update_weights_from_tensor(
        self, named_tensors: list[tuple[str, Tensor]], load_format: str | None = None, flush_cache: bool = True
    ) -> tuple[bool, str]: ...

    def end_weight_update(self) -> tuple[bool, str]: ...


class UpdateFailed(Exception):
    """The server's own words. It holds the weights of two steps: update it again, or load a checkpoint."""


def update_weights(
    engine: Engine,
    exporter: LiveExporter,
    buckets: Iterable[Mapping[str, Tensor]],
    *,
    step: int,
    evidence: Path,
    max_bytes: int = 512 << 20,
) -> Session:
    """This updates every weight of a server, and enters the step in the evidence log if it came to its end."""
    with exporter.session(step=step, evidence=evidence) as session:
        _require(engine.begin_weight_update())
        for bucket in buckets:
            for batch in session.batches(bucket, max_bytes):
                _require(engine.update_weights_from_tensor(batch))
        session.require_complete()
        _require(engine.end_weight_update())
    return session


def _require(answer: tuple[bool, str]) -> None:
    succeeded, message = answer
    if not succeeded:
        raise UpdateFailed(message)
