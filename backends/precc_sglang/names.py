"""The module of SGLang that holds a tensor, and the prefix its class asks the quantization config with.

A class (see `classes`) fuses q, k and v, gate and up, and (with
latent attention) q_a and kv_a; it may or may not declare that to the config (`packed`): what it does not declare, the
`compressed-tensors` and `modelopt_mixed` matchers know under the fused name only.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.records import replace
from precc.syntax.words import Role
from precc_sglang.classes import (
    CLASSES,
    GATE_UP,
    MIXTRAL,
    MIXTRAL_WITH_EXPERT_LAYER,
    QKV,
    QKV_A,
    UNFUSED_MIXTRAL,
)
from precc_sglang.model_class import TOWERS, ModelClass, Packed


class Kind(Enum):
    """What a module is to the quantization config."""

    LINEAR = "linear layer"
    EXPERTS = "expert layer"
    HEAD = "LM head"
    NEVER = "module that is built without a quantization config"


class Module(NamedTuple):
    """One module: the prefix it asks with, and the unfused names it stands for (its own where nothing is fused).

    `draft` modules belong to the next-token draft model, which reads the same config through its own class. An
    `EXPERT` component stands for the number of each expert where a class builds one module an expert.
    """

    prefix: str
    kind: Kind
    shards: tuple[str, ...]
    draft: bool = False

    @property
    def last(self) -> str:
        return self.prefix.rpartition(".")[2]


_NEVER_ROLES = frozenset({Role.ROUTER, Role.EMBEDDING, Role.NORM})
_BESIDE_DECODER = frozenset({"shared_head", "e_proj", "h_proj"})
_NEVER_NAMES = frozenset({"shared_expert_gate", "eh_proj", "weights_proj"})


def class_of(model: ModelGraph, method: str) -> ModelClass | None:
    """The class that SGLang builds for a model under a quantization method (empty for none); None if unknown."""
    found = CLASSES.get(model.architecture)
    if found is MIXTRAL and method not in MIXTRAL_WITH_EXPERT_LAYER:
        return UNFUSED_MIXTRAL
    if found is None:
        return None
    if found.never_under[0] != method:
        found = replace(found, never_under=("", frozenset()))
    if found.only_under[0] == method:
        found = replace(found, only_under=("", frozenset()))
    if model.config.get("indexer_rope_interleave"):
        found = replace(found, fuses_indexer_keys=True)
    return found if _compresses_queries(model) else _without_query_fusion(found)


def _compresses_queries(model: ModelGraph) -> bool:
    return any(tensor.part == "q_a" for tensor in model.tensors)


def _without_query_fusion(found: ModelClass) -> ModelClass:
    def other(packed: Packed) -> Packed:
        return {fused: parts for fused, parts in packed.items() if fused not in QKV_A}

    return replace(found, fuses=other(found.fuses), packed=other(found.packed))


def module_of(tensor: Tensor, built: ModelClass) -> Module | None:
    """The module that holds a tensor; None for what is no GEMM operand (norms, biases, correction terms)."""
    if not tensor.is_gemm:
        return None
    path, draft = _asked_path(tensor, built)
    kind = _kind(tensor, built)
    if kind is Kind.EXPERTS:
        container = ".".join(path[: path.index(EXPERT)] if EXPERT in path else path[:-1])
        return Module(container, kind, (container,), draft)
    fuses = kind is Kind.LINEAR or built.bars(tensor) or tensor.outer in TOWERS
    fused = built.fused(path, tensor.role) if fuses else None
    if fused is None:
        return Module(".".join(path), kind, (".".join(path),), draft)
    name, parts = fused
    return Module(name, kind, parts if _is_known(name, built) else (name,), draft)


def _is_known(fused: str, built: ModelClass) -> bool:
    """Whether some matcher knows a fused module by the names of its parts."""
    return fused.rpartition(".")[2] in {*built.packed, *QKV, *GATE_UP}


def _kind(tensor: Tensor, built: ModelClass) -> Kind:
    last = tensor.path[-1]
    if tensor.outer in TOWERS or not built.holds(tensor):
        return Kind.NEVER
    if tensor.role is Role.LM_HEAD:
        return Kind.HEAD if built.head and tensor.tied_to is None else Kind.NEVER
    if tensor.role in _NEVER_ROLES or built.bars(tensor) or last in _NEVER_NAMES - built.asking:
        return Kind.NEVER
    if tensor.role is Role.ROUTED_EXPERTS and built.name != UNFUSED_MIXTRAL.name:
        return Kind.EXPERTS
    return Kind.LINEAR


def _asked_path(tensor: Tensor, built: ModelClass) -> tuple[tuple[str, ...], bool]:
    """The path in SGLang's own tree, and whether it is the draft model's."""
    path = tensor.path
    if tensor.mtp is not None and tensor.outer_depth > 1:
        below = built.drafted(path[tensor.outer_depth :])
        return (("model", *below) if below[0] in _BESIDE_DECODER else ("model", "decoder", *below)), True
    return built.asked(path), tensor.mtp is not None
