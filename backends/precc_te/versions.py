"""What changes between the modelled versions of Megatron-Core and TransformerEngine, as tables.

Each first version is that of the change's first release: backward override TE 2.15 (its pull request 2644), row
scaling 2.16 (2931), four-over-six 2.17 (2972), hybrid and identity quantizers 2.19 (2817); `fp8_param` and
`fp4_param` in a module's recipe Megatron-Core 0.19 (4358).
"""

from __future__ import annotations

from collections.abc import Mapping

from precc.backend import select_version
from precc.contract import TrainLayout
from precc.records import record

MEGATRON_CORE: tuple[str, ...] = ("0.20", "0.19.2", "0.16.1")
"""0.20 is the main branch at d98e8a64 (2026-08-22)."""

UNRELEASED = frozenset({"0.20"})
"""Modelled versions that no package index has."""

TE: tuple[str, ...] = ("2.20.2", "2.19", "2.18", "2.17", "2.16", "2.15")

ENGINES: Mapping[str, tuple[str, ...]] = {"megatron_core": MEGATRON_CORE, "te": TE}

_RECIPE_FIELDS = frozenset(
    {
        "fp8_quantization_recipe",
        "fp4_quantization_recipe",
        "custom_recipe_factory",
        "fp8_format",
        "override_quantized_autocast",
        "override_nonquantized_autocast",
        "tp_only_amax_red",
    }
)
_PARAMETER_FIELDS = frozenset({"fp8_param", "fp4_param"})


@record
class Megatron:
    """One version of Megatron-Core: the fields of a module's recipe, and what an MTP layer calls its inner layer.

    `shares_indexers` is whether layers may reuse the choice of an earlier layer's indexer.
    """

    version: str
    recipe_fields: frozenset[str]
    mtp_inner: str
    shares_indexers: bool


MEGATRON: dict[str, Megatron] = {
    "0.20": Megatron("0.20", _RECIPE_FIELDS | _PARAMETER_FIELDS, "mtp_model_layer", True),
    "0.19.2": Megatron("0.19.2", _RECIPE_FIELDS | _PARAMETER_FIELDS, "mtp_model_layer", True),
    "0.16.1": Megatron("0.16.1", _RECIPE_FIELDS, "transformer_layer", False),
}

BACKWARD_OVERRIDE = "backward override"
ROW_SCALING = "per-token (row-scaled) NVFP4"
FOUR_OVER_SIX = "four-over-six"
FACTORIES = "recipe factories (hybrid and identity quantizers)"
DEQUANTIZED_KEPT = "a `dequantized` backward that Megatron's saved inputs do not defeat"

SINCE: dict[str, tuple[int, int]] = {
    BACKWARD_OVERRIDE: (2, 15),
    ROW_SCALING: (2, 16),
    FOUR_OVER_SIX: (2, 17),
    DEQUANTIZED_KEPT: (2, 18),
    FACTORIES: (2, 19),
}
"""The first TransformerEngine release that has each feature."""


@record
class Engine:
    """The two versions that a contract is compiled for."""

    megatron: Megatron
    te: str

    def has(self, feature: str) -> bool:
        """Whether this TransformerEngine has a feature of `SINCE`."""
        return release(self.te) >= SINCE[feature]


def newest_released(engine: str) -> str:
    """The newest modelled version of an engine that can be installed."""
    return next(version for version in ENGINES[engine] if version not in UNRELEASED)


NEWEST = Engine(MEGATRON[MEGATRON_CORE[0]], TE[0])


def release(version: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def engine_of(train: TrainLayout) -> Engine:
    """The versions that a layout states; the newest for one that is unknown, which P701 reports."""
    core = select_version(train.megatron_core, MEGATRON_CORE) or MEGATRON_CORE[0]
    return Engine(MEGATRON[core], select_version(train.te, TE) or TE[0])
