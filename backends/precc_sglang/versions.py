"""The engine versions whose rules are modelled, and the GPUs as their kernels see them."""

from __future__ import annotations

from precc.backend import select_version
from precc.contract import RolloutLayout

SGLANG: tuple[str, ...] = ("0.5.23",)

FLASHINFER: tuple[str, ...] = ("0.7.4", "0.7.2")
"""SGLang 0.5.23 pins 0.7.2; nothing that is modelled here differs between the two."""

ENGINES: dict[str, tuple[str, ...]] = {"sglang": SGLANG, "flashinfer": FLASHINFER}

HOPPER, BLACKWELL = 90, 100

CAPABILITY: dict[str, int] = {"h100": 90, "h200": 90, "b200": 100, "gb200": 100, "b300": 103, "gb300": 103}
"""CUDA compute capability times ten."""


def capability(rollout: RolloutLayout) -> int:
    """The compute capability of the rollout's GPU; that of a B200 for a GPU that is not in the table."""
    return CAPABILITY.get(rollout.gpu, BLACKWELL)


def is_blackwell(rollout: RolloutLayout) -> bool:
    """Whether the rollout runs on a data-centre Blackwell."""
    return capability(rollout) >= BLACKWELL


def sglang_version(rollout: RolloutLayout) -> str:
    """The modelled version that the layout means; the newest for one that is unknown, which P701 reports."""
    return select_version(rollout.sglang, SGLANG) or SGLANG[0]
