"""The words of the language that are no formats: roles, reserved words, layout keys."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """The part a tensor plays in a model, whatever its architecture calls it. Written `@role`."""

    ROUTED_EXPERTS = "routed_experts"
    SHARED_EXPERTS = "shared_experts"
    ATTENTION = "attention"
    LINEAR_ATTENTION = "linear_attention"
    MLA = "mla"
    INDEXER = "indexer"
    DENSE_MLP = "dense_mlp"
    ROUTER = "router"
    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    NORM = "norm"
    MTP = "mtp"
    VISION = "vision"
    AUDIO = "audio"


ROLES: tuple[str, ...] = tuple(role.value for role in Role)

# fmt: off
RESERVED: frozenset[str] = frozenset((
    "policy", "extends", "let", "default", "kv_cache", "targets", "train", "rollout", "expect",
    "in", "except", "is",
))
# fmt: on
"""Never the first component of a path."""

TRAIN_KEYS: tuple[str, ...] = ("gpu", "tp", "pp", "vpp", "ep", "etp", "megatron_core", "te")
ROLLOUT_KEYS: tuple[str, ...] = ("gpu", "tp", "pp", "ep", "etp", "dp", "sglang", "flashinfer")
GPUS: tuple[str, ...] = ("h100", "h200", "b200", "b300", "gb200", "gb300")
