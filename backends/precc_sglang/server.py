"""The arguments of the server: those that decide precision, and the layout where the policy states one."""

from __future__ import annotations

from collections.abc import Iterator

from precc.backend import CONTRACT_LINE
from precc.contract import Contract, RolloutLayout
from precc.syntax.words import Role
from precc_sglang.families import (
    FP8_BLOCK,
    INT4,
    MXFP4,
    MXFP4_WEIGHTS,
    MXFP8,
    NVFP4_STATIC,
    NVFP4_TOKEN,
    NVFP4_WEIGHTS,
    UNQUANTIZED,
    Family,
    family_of,
    is_mxfp4,
    is_w4a4,
)
from precc_sglang.methods import HYBRID, NONE, Choice
from precc_sglang.model_class import ModelClass
from precc_sglang.names import Kind
from precc_sglang.versions import is_blackwell, release_of

CACHE_DTYPES = {"bf16": "bf16", "fp8": "fp8_e4m3"}

TRTLLM = ("flashinfer_trtllm_routed", "flashinfer_trtllm")

RUNNERS: dict[str, tuple[str, ...]] = {
    NVFP4_TOKEN.name: TRTLLM,
    NVFP4_STATIC.name: TRTLLM,
    MXFP8.name: TRTLLM,
    NVFP4_WEIGHTS.name: ("marlin",),
    INT4.name: ("marlin", "triton"),
    MXFP4_WEIGHTS.name: ("triton_kernel", "marlin"),
    MXFP4.name: ("flashinfer_mxfp4",),
}
"""The expert backends that run a family as decided, the preferred first; any will do for a family that is not here."""

BESIDE_FP8: dict[str, tuple[str, ...]] = {MXFP4_WEIGHTS.name: RUNNERS[MXFP4.name]}
"""The same for a class that loads MXFP4 under the method `fp8`, where that differs."""

PRECISION = "flashinfer-mxfp4-moe-precision"
"""What `flashinfer_mxfp4` makes of the inputs of experts under the method `fp8`."""

PRECISIONS: dict[str, str] = {MXFP4.name: "default", MXFP4_WEIGHTS.name: "bf16"}
"""Its values by what they serve: `default` is MXFP8 on Blackwell, and BF16 on Hopper."""

BLOCK_BACKENDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pow2": ("deep_gemm", ("deep_gemm",)),
    "fp32": ("flashinfer_trtllm", TRTLLM),
}
"""Block FP8 on Blackwell by its scales: the dense backend, and those for experts. DeepGEMM rounds every scale to a
power of two, FlashInfer none."""

Argument = tuple[str, str | int | bool]


def arguments(contract: Contract, choice: Choice) -> Iterator[Argument]:
    """The arguments for `--config`, by their long names."""
    yield "dtype", "bfloat16"
    cache = CACHE_DTYPES[contract.kv_cache]
    yield "kv-cache-dtype", "bfloat16" if cache == "bf16" and choice.built.fp8_beside_fp4 else cache
    if choice.method != NONE:
        yield "quantization", choice.method.argument
    runners = allowed_runners(contract, choice)
    if runners:
        yield "moe-runner-backend", runners[0]
    yield from ((PRECISION, PRECISIONS[family.name]) for family in mxfp4_beside_fp8(choice))
    apart = drafts_apart(choice)
    if apart is not None:
        yield DRAFT_RUNNER, (runners_of(apart, choice.built) or BLOCK_BACKENDS[block_scales(contract)[0]])[0]
    scales = block_scales(contract)
    if scales and is_blackwell(contract.rollout):
        yield "fp8-gemm-backend", BLOCK_BACKENDS[scales[0]][0]
    if layers_apart(contract):
        yield UNFUSED, True
    yield "weight-version", f"0:{contract.digest}"
    yield from layout(contract.rollout)


DRAFT_RUNNER = "speculative-moe-runner-backend"
"""The expert backend of the draft model."""


def drafts_apart(choice: Choice) -> Family | None:
    """What the draft model's experts are in where those beside are in NVFP4, and these in kernels of their own."""
    drafts = (family for module, family in choice.families() if module.draft and module.kind is Kind.EXPERTS)
    apart = (family for family in drafts if family is not UNQUANTIZED and not is_w4a4(family))
    return next(apart, None) if choice.method == HYBRID else None


def mxfp4_beside_fp8(choice: Choice) -> set[Family]:
    """The families of experts in MXFP4 under the method `fp8`; rules make sure that there is one at most."""
    families = {family for module, family in choice.families() if module.kind is Kind.EXPERTS and is_mxfp4(family)}
    return families if choice.built.mxfp4 == "beside" else set()


UNFUSED = "disable-shared-experts-fusion"


def layout(rollout: RolloutLayout) -> Iterator[Argument]:
    """The parallel sizes of a layout that is stated; those that nobody stated are the launcher's business."""
    if not rollout.stated:
        return
    yield "tp-size", rollout.tp
    yield "pp-size", rollout.pp
    yield "ep-size", rollout.ep
    release = release_of(rollout)
    yield release.attention_dp, rollout.dp
    if release.attention_dp_switch and rollout.dp > 1:
        yield release.attention_dp_switch, True


def allowed_runners(contract: Contract, choice: Choice) -> tuple[str, ...] | None:
    """The expert backends that run every expert layer as decided: None for any, empty for none."""
    allowed: tuple[str, ...] | None = None
    apart = drafts_apart(choice)
    families = {
        family for module, family in choice.families() if module.kind is Kind.EXPERTS and not (apart and module.draft)
    }
    for family in sorted(families, key=lambda family: family.name):
        needed = _runners(contract, family, choice.built)
        if needed is not None:
            allowed = needed if allowed is None else tuple(runner for runner in allowed if runner in needed)
    unfit = {runner for family in families for runner in choice.built.unfit.get(family.name, ())}
    return allowed if allowed is None else tuple(runner for runner in allowed if runner not in unfit)


def runners_of(family: Family, built: ModelClass) -> tuple[str, ...] | None:
    """The expert backends that run a family as decided in a class; None for any, or where scales decide it."""
    own = BESIDE_FP8.get(family.name) if built.mxfp4 == "beside" else None
    return own or RUNNERS.get(family.name)


def _runners(contract: Contract, family: Family, built: ModelClass) -> tuple[str, ...] | None:
    if family is not FP8_BLOCK:
        return runners_of(family, built)
    if not is_blackwell(contract.rollout):
        return None
    return BLOCK_BACKENDS[block_scales(contract)[0]][1]


def block_scales(contract: Contract) -> list[str]:
    """The scale types of block FP8 that occur: `pow2`, `fp32`."""
    weights = {entry.decision.weight for entry in contract.quantized() if family_of(entry.decision) is FP8_BLOCK}
    return sorted({weight.scale or "pow2" for weight in weights})


Layer = tuple[int | None, int | None]
"""The number of a decoder layer, or of an MTP layer."""


def layers_apart(contract: Contract) -> set[Layer]:
    """The layers whose shared experts are decided otherwise than their routed ones."""
    layers: dict[Layer, dict[Role, set[Family | None]]] = {}
    for entry in contract.entries:
        tensor = entry.tensor
        if tensor.is_gemm and tensor.role in (Role.ROUTED_EXPERTS, Role.SHARED_EXPERTS):
            families = layers.setdefault((tensor.layer, tensor.mtp), {}).setdefault(tensor.role, set())
            families.add(family_of(entry.decision))
    return {
        layer
        for layer, found in layers.items()
        if len(found) == 2 and found[Role.ROUTED_EXPERTS] != found[Role.SHARED_EXPERTS]
    }


def server_text(contract: Contract, choice: Choice) -> str:
    """This is `server.yaml`, for `--config`."""
    lines = [f"{CONTRACT_LINE}{contract.digest}"]
    lines += [f"{name}: {_scalar(value)}" for name, value in arguments(contract, choice)]
    return "\n".join(lines) + "\n"


def _scalar(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if ":" in str(value) else str(value)
