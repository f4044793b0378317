"""What changes between the modelled versions of SGLang, as a table, and the GPUs as their kernels see them.

0.5.16 is the SGLang that Miles pins. Its side of each row was executed with its own code, on a CPU, but for two that
only a GPU shows and that are read from its source: the scales of block-FP8 inputs on Hopper, and `variables`, which
choose kernels. Kernels themselves run on neither: a difference in rounding between two kernels of one name is not seen.
FlashInfer 0.6.14 reads the same variables by the same rules (`1` and nothing else) as 0.7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from precc.backend import select_version
from precc.contract import RolloutLayout
from precc.records import record

SGLANG: tuple[str, ...] = ("0.5.23", "0.5.16")

FLASHINFER: tuple[str, ...] = ("0.7.4", "0.7.2", "0.6.14")
"""Nothing that is modelled here differs between the three."""

ENGINES: dict[str, tuple[str, ...]] = {"sglang": SGLANG, "flashinfer": FLASHINFER}


@record
class Release:
    """One version of SGLang, as far as versions differ.

    `flashinfer` is the version that its package requires. `modelopt_fp4` and `mixed` are the algorithms that these two
    methods have kernels for; `modelopt_mixed` leaves a module with any other one unquantized, without a word.
    `algorithm_parts`: what ModelOpt's config names as its algorithm is searched for `FP8` and `FP4`, not compared.
    `ignore_keys` are the keys of a ModelOpt list, the first
    that is there; `legacy_ignore_keys` those in `hf_quant_config.json`. `ignore_contained`: a compressed-tensors entry
    takes every module whose name contains it. `nested_names`: a mix finds `model.…` under `model.language_model.…`,
    and back. `fp4_over_fp8`: a four-bit method may be asked for over an FP8 checkpoint. `declared_scales`: `scale_fmt`
    decides the scales of block-FP8 inputs where no backend does. `scalar_shared_experts`: shared experts may have
    static per-tensor FP8. `otherwise` are the classes that this version builds otherwise than `classes` says, or not.
    `attention_dp` is the argument for ranks of attention data parallelism, and
    `attention_dp_switch` one that it needs beside it. `variables` decide precision in this version alone.
    """

    version: str
    flashinfer: str
    modelopt_fp4: frozenset[str]
    mixed: frozenset[str]
    attention_dp: str
    attention_dp_switch: str = ""
    algorithm_parts: bool = False
    ignore_keys: tuple[str, ...] = ("ignore", "modules_to_not_convert", "exclude_modules")
    legacy_ignore_keys: tuple[str, ...] = ("ignore", "modules_to_not_convert", "exclude_modules")
    ignore_contained: bool = False
    nested_names: bool = True
    fp4_over_fp8: bool = True
    declared_scales: bool = True
    scalar_shared_experts: bool = True
    otherwise: frozenset[str] = frozenset()
    variables: tuple[str, ...] = ()


RELEASES: Mapping[str, Release] = {
    "0.5.23": Release(
        "0.5.23",
        "0.7.2",
        modelopt_fp4=frozenset({"NVFP4", "W4A16_NVFP4"}),
        mixed=frozenset({"FP8", "NVFP4", "W4A16_NVFP4", "MXFP8", "FP8_PB_WO", "FP8_BLOCK_SCALES"}),
        attention_dp="attn-dp-size",
    ),
    "0.5.16": Release(
        "0.5.16",
        "0.6.14",
        modelopt_fp4=frozenset({"NVFP4"}),
        mixed=frozenset({"FP8", "NVFP4", "W4A16_NVFP4"}),
        attention_dp="dp-size",
        attention_dp_switch="enable-dp-attention",
        algorithm_parts=True,
        ignore_keys=("ignore",),
        legacy_ignore_keys=("exclude_modules",),
        ignore_contained=True,
        nested_names=False,
        fp4_over_fp8=False,
        declared_scales=False,
        scalar_shared_experts=False,
        otherwise=frozenset(
            {"MiMoV2FlashForCausalLM", "MiniMaxM3SparseForConditionalGeneration", "NemotronHForCausalLM"}
        ),
        variables=(
            "SGLANG_CUTLASS_MOE",
            "SGLANG_MASKED_GEMM_FAST_ACT",
            "SGLANG_OPT_DEEPGEMM_MEGA_MOE_USE_FP4_ACTS",
            "SGL_USE_DEEPGEMM_BMM",
        ),
    ),
}
"""By version, the newest first."""

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


def version_that(has: Callable[[Release], bool]) -> str | None:
    """The newest modelled version with a property."""
    return next((release.version for release in RELEASES.values() if has(release)), None)


def release_of(rollout: RolloutLayout) -> Release:
    """What the version that the layout means has."""
    return RELEASES[sglang_version(rollout)]
