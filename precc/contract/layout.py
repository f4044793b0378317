"""The layout the two sides run in. It never changes a number; it decides what an engine can express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from precc.records import record, replace, values

VERSIONS = frozenset({"megatron_core", "te", "sglang", "flashinfer"})
"""The settings that name an engine's version."""


@record
class Layout:
    """What both sides have: the GPU and the parallel sizes. `stated` is false for the assumed layout."""

    gpu: str = "b200"
    tp: int = 1
    pp: int = 1
    ep: int = 1
    stated: bool = False

    def with_settings(self, settings: Mapping[str, str]) -> Self:
        """The same layout with some settings replaced; sizes are read from their words. A version states no layout."""
        typed = {key: int(word) if isinstance(getattr(self, key), int) else word for key, word in settings.items()}
        return replace(self, **typed, stated=self.stated or not settings.keys() <= VERSIONS)

    def to_json(self) -> dict[str, Any]:
        return values(self)


@record
class TrainLayout(Layout):
    """The trainer: pipeline stages `pp` of `vpp` virtual chunks, experts over `ep` ranks and each expert over
    `etp`. Versions are words; empty means the newest that is modelled."""

    vpp: int = 1
    etp: int = 1
    megatron_core: str = ""
    te: str = ""


@record
class RolloutLayout(Layout):
    """The server: `tp` ranks of which `ep` share out the experts, so that each expert is split over
    `etp` = tp / ep of them (0: derived), and `dp` ranks of attention data parallelism."""

    dp: int = 1
    etp: int = 0
    sglang: str = ""
    flashinfer: str = ""

    @property
    def expert_tp(self) -> int:
        """How many ranks share one expert."""
        return self.etp or max(1, self.tp // self.ep)

    @property
    def attention_tp(self) -> int:
        """How many ranks share the attention of one request."""
        return max(1, self.tp // self.dp)
