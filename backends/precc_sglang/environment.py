"""The environment of the server: every variable that changes its numbers is set or unset, none is inherited."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from precc.backend import CONTRACT_LINE, shell_lines
from precc.contract import Contract, RolloutLayout
from precc.formats import FourOverSix
from precc_sglang.families import NVFP4_TOKEN, family_of, is_w4a4
from precc_sglang.methods import quantized_families
from precc_sglang.versions import release_of

PER_TOKEN = "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION"
EXACT_MATH = ("FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH", "TRTLLM_DISABLE_FP4_QUANT_FAST_MATH")
"""Both: the CUDA kernels read either, the CuTe-DSL per-token quantizer only the first."""

ADAPTIVE = "FLASHINFER_NVFP4_4OVER6"
ADAPTIVE_MAX = "FLASHINFER_NVFP4_4OVER6_E4M3_USE_256"
ADAPTIVE_ERROR = "FLASHINFER_NVFP4_4OVER6_ERR_MODE"
ADAPTIVE_FAST = "FLASHINFER_NVFP4_4OVER6_ERR_USE_FAST_MATH"

FP8_IGNORED = "SGLANG_FP8_IGNORED_LAYERS"
FP8_QUERIES = "SGLANG_NVFP4_CKPT_FP8_GEMM_IN_ATTN"
MXFP8_TO_BLOCKS = "SGLANG_FORCE_MXFP8_BLOCK_CONVERT"
FP8_MARLIN = "SGLANG_FORCE_FP8_MARLIN"
FP8_DRAFT_EXPERTS = "SGLANG_NVFP4_CKPT_FP8_NEXTN_MOE"

VARIABLES: tuple[str, ...] = (
    PER_TOKEN,
    *EXACT_MATH,
    ADAPTIVE,
    ADAPTIVE_MAX,
    ADAPTIVE_ERROR,
    ADAPTIVE_FAST,
    FP8_IGNORED,
    "SGLANG_FP4_IGNORED_LAYERS",
    FP8_QUERIES,
    FP8_DRAFT_EXPERTS,
    FP8_MARLIN,
    MXFP8_TO_BLOCKS,
    "SGLANG_FORCE_MXFP8_BLOCK_CONVERT_DENSE",
    "SGLANG_DISABLE_DSA_INDEXER_FUSION",
    "SGLANG_DSV4_FP4_DEQUANT",
    "SGLANG_DSV4_FP4_EXPERTS",
    "SGLANG_ENABLE_DP_GATHER_FP8",
    "SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16",
    "SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE",
    "SGLANG_FLASHINFER_MOE_FUSED_FINALIZE",
    "SGLANG_INT4_WEIGHT",
    "SGLANG_MOE_NVFP4_DISPATCH",
    "SGLANG_OPT_FP8_WO_A_GEMM",
    "SGLANG_OPT_HOPPER_BLOCK_FP8_BF16",
    "SGLANG_QUANT_ALLOW_DOWNCASTING",
    "SGLANG_ROPE_CACHE_FP32",
)
"""Every variable of SGLang 0.5.23 and FlashInfer 0.7 that decides a format or rounds a number.

They are set or unset for older versions too, which do not read all of them, and have some of their own.
"""

MODELLED: tuple[str, ...] = (
    PER_TOKEN,
    *EXACT_MATH,
    ADAPTIVE,
    ADAPTIVE_MAX,
    ADAPTIVE_ERROR,
    ADAPTIVE_FAST,
    FP8_IGNORED,
    FP8_QUERIES,
    FP8_MARLIN,
    MXFP8_TO_BLOCKS,
)
"""Those whose values have a meaning here; the others can only be unset."""


def variables_of(rollout: RolloutLayout) -> tuple[str, ...]:
    """The variables that the environment of a version sets or unsets."""
    return (*VARIABLES, *release_of(rollout).variables)


def environment(contract: Contract) -> dict[str, Any]:
    """This is the content of `env.json`: the digest, what is set and what is unset."""
    wanted, names = dict(_settings(contract)), variables_of(contract.rollout)
    return {
        "digest": contract.digest,
        "set": {name: wanted[name] for name in names if name in wanted},
        "unset": sorted(name for name in names if name not in wanted),
    }


def _settings(contract: Contract) -> Iterator[tuple[str, str]]:
    families = quantized_families(contract.entries)
    if not any(is_w4a4(family) for family in families):
        return
    yield PER_TOKEN, "1" if NVFP4_TOKEN in families else "0"
    for name in EXACT_MATH:
        yield name, "1"
    adaptive = activation_scaling(contract)
    if adaptive is not None:
        yield ADAPTIVE, "1"
        yield ADAPTIVE_MAX, "1" if adaptive.maximum == 256 else "0"
        yield ADAPTIVE_ERROR, adaptive.error.upper()
        yield ADAPTIVE_FAST, "0"


def activation_scaling(contract: Contract) -> FourOverSix | None:
    """Four-over-six of the NVFP4 inputs; one setting for the process, which a rule makes sure of."""
    found = (
        decision.input.four_over_six
        for decision in {entry.decision for entry in contract.quantized()}
        if decision.input is not None and is_w4a4(family_of(decision))
    )
    return next((adaptive for adaptive in found if adaptive is not None), None)


def environment_text(facts: dict[str, Any]) -> str:
    """This is `env.json`."""
    return json.dumps(facts, indent=2) + "\n"


def shell_text(facts: dict[str, Any]) -> str:
    """This is `env.sh`, to be sourced: safe under `set -u`, and without effect on anything else."""
    return "".join((f"{CONTRACT_LINE}{facts['digest']}\n", *shell_lines(facts["set"], facts["unset"])))


_LINE = re.compile(r"(?:export (?P<set>\w+)=(?P<value>\S*)|unset (?P<unset>\w+))")


def shell_settings(text: str) -> dict[str, str | None]:
    """What sourcing an `env.sh` leaves of each variable that it names: its value, or None for unset.

    Raises ValueError for a line that does anything else.
    """
    state: dict[str, str | None] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        found = _LINE.fullmatch(line)
        if found:
            state[found["set"] or found["unset"]] = found["value"]
        elif line and not line.startswith("#"):
            raise ValueError(f"line {number} is neither `export NAME=value` nor `unset NAME`: {line}")
    return state
