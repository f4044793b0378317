"""The names that Miles' lists are matched against: a tensor's in the checkpoint, its parameter's in Megatron.

Both may stand for a range of experts, whose number is left open (`EXPERT`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.syntax.words import Role
from precc_miles.profile import MTP_INNER

Hit = bool | None
"""Whether a list takes a name; None where it takes some experts of a range and not others."""


def checkpoint_name(tensor: Tensor) -> str:
    """The stored name, the number of an expert left open."""
    return ".".join((*tensor.path, tensor.parameter) if tensor.parameter else tensor.path)


@dataclass(frozen=True, slots=True)
class Linear:
    """One linear layer of Megatron: its suffix below the layer, and the layer.

    `multiplied` are layers of TransformerEngine, which a recipe reaches; linear attention and gates are plain torch.
    """

    suffix: str
    layer: int | None
    mtp: int | None
    multiplied: bool = True

    def path(self, number: int) -> str:
        """The module's path, with the number of its decoder layer as a rank counts it."""
        if self.mtp is None:
            return f"decoder.layers.{number}.{self.suffix}"
        inner = "" if self.suffix == "eh_proj" else f"{MTP_INNER}."
        return f"mtp.layers.{self.mtp}.{inner}{self.suffix}"

    @property
    def parameter(self) -> str:
        """The parameter's name as the live export sees it, with its global layer; that of experts is numbered."""
        number = EXPERT if self.is_experts else ""
        return f"module.module.{self.path(self.layer or 0)}.weight{number}"

    @property
    def is_experts(self) -> bool:
        return self.suffix.startswith("mlp.experts.")


_FC = {"gate": "linear_fc1", "up": "linear_fc1", "gate_up": "linear_fc1", "down": "linear_fc2"}

_SUFFIXES: Mapping[Role, Mapping[str, str]] = {
    Role.ROUTED_EXPERTS: {part: f"mlp.experts.{name}" for part, name in _FC.items()},
    Role.SHARED_EXPERTS: {part: f"mlp.shared_experts.{name}" for part, name in _FC.items()},
    Role.DENSE_MLP: {part: f"mlp.{name}" for part, name in _FC.items()},
    Role.ATTENTION: {
        **dict.fromkeys(("q", "k", "v", "qkv"), "self_attention.linear_qkv"),
        "o": "self_attention.linear_proj",
        "q_a": "self_attention.linear_q_down_proj",
        "q_b": "self_attention.linear_q_up_proj",
        "kv_a": "self_attention.linear_kv_down_proj",
        "kv_b": "self_attention.linear_kv_up_proj",
    },
    Role.MLA: {"kv_b": "self_attention.linear_kv_up_proj"},
    Role.INDEXER: {part: f"self_attention.{part}" for part in ("wq_b", "wk", "weights_proj")},
}
"""By role and part, from `megatron_to_hf/{deepseekv3,glm4moe,qwen3moe,qwen2,llama}.py`."""


def is_latent(model: ModelGraph) -> bool:
    """Whether a model has latent attention, whose query is a linear layer of its own."""
    return any(tensor.part == "kv_b" for tensor in model.tensors)


def linear_of(tensor: Tensor, latent: bool) -> Linear | None:
    """The linear layer that trains a tensor; None for what no list or recipe of Miles is about."""
    if not tensor.is_gemm or (tensor.role is None and tensor.part != "fc"):
        return None
    if tensor.layer is None and tensor.mtp is None:
        return None
    if tensor.part == "fc":
        return Linear("eh_proj", None, tensor.mtp)
    if tensor.role is Role.LINEAR_ATTENTION:
        return Linear(f"self_attention.linear_attn.{tensor.path[-1]}", tensor.layer, tensor.mtp, multiplied=False)
    if latent and tensor.part == "q":
        return Linear("self_attention.linear_q_proj", tensor.layer, tensor.mtp)
    suffix = _SUFFIXES.get(tensor.role, {}).get(tensor.part) if tensor.role is not None else None
    return None if suffix is None else Linear(suffix, tensor.layer, tensor.mtp)


def hit(substrings: Iterable[str], name: str, experts: range | None) -> Hit:
    """Whether any of the substrings is part of a name, for all experts of its range."""
    if EXPERT not in name or experts is None:
        return any(part in name for part in substrings)
    head, tail = name.split(EXPERT)
    parts = tuple(substrings)
    if any(part in head or part in tail for part in parts):
        return True
    crossing = [part for part in parts if _may_cross(part, head)]
    found = {any(part in f"{head}{number}{tail}" for part in crossing) for number in experts} if crossing else {False}
    return found.pop() if len(found) == 1 else None


def _may_cross(part: str, head: str) -> bool:
    """Whether a substring can reach into the number behind `head`."""
    digits = (at for at, letter in enumerate(part) if letter.isdecimal())
    return any(head.endswith(part[:at]) for at in digits)
