"""The rollout server's arguments, as Miles passes them on: `--sglang-` before SGLang's own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from precc.contract import Contract
from precc.graph.model import Tensor
from precc.syntax.words import Role
from precc_miles.stages import Run, Staged, decided

PREFIX = "--sglang-"

DRAFT = f"{PREFIX}speculative-algorithm"
"""The argument that makes a server load the MTP layers as a draft model."""

CACHES: Mapping[str, str] = {"bf16": "bf16", "fp8": "fp8_e4m3"}
"""SGLang's words for the KV cache. It is always said: the NVFP4 converter declares an FP8 cache in what it writes."""


def server_lines(contract: Contract, run: Run) -> Iterator[str]:
    """What decides precision, and the sizes of a layout that is stated."""
    yield f"{PREFIX}dtype bfloat16"
    yield f"{PREFIX}kv-cache-dtype {CACHES[contract.kv_cache]}"
    form = run.conversion.form if run.conversion else None
    if form is not None:
        yield f"{PREFIX}quantization {form.method}"
    if form is not None and form.runner and contract.model.expert_count:
        yield f"{PREFIX}moe-runner-backend {form.runner}"
    if shared_apart(contract.tensors, tuple(map(decided, contract.entries))):
        yield f"{PREFIX}disable-shared-experts-fusion"
    yield from _layout(contract)


def _layout(contract: Contract) -> Iterator[str]:
    rollout = contract.rollout
    if not rollout.stated:
        return
    yield f"--rollout-num-gpus-per-engine {rollout.tp}"
    yield f"{PREFIX}ep-size {rollout.ep}"
    if rollout.dp > 1:
        yield f"{PREFIX}dp-size {rollout.dp}"
        yield f"{PREFIX}enable-dp-attention"


def shared_apart(tensors: Sequence[Tensor], stages: Sequence[Staged]) -> bool:
    """Whether some layer's shared experts are served otherwise than its routed ones."""
    layers: dict[tuple[int | None, int | None], dict[Role, set[str]]] = {}
    for tensor, staged in zip(tensors, stages, strict=True):
        if tensor.is_gemm and tensor.role in (Role.ROUTED_EXPERTS, Role.SHARED_EXPERTS):
            roles = layers.setdefault((tensor.layer, tensor.mtp), {})
            roles.setdefault(tensor.role, set()).add(staged.rollout)
    return any(len(roles) == 2 and len(set.union(*roles.values())) > 1 for roles in layers.values())
