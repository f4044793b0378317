"""Megatron's name for a tensor: the path of the linear layer that multiplies it, a function of role and part.

The paths are those of `GPTModel.named_modules()` with TransformerEngine layer specs. Nothing else can be reached by
a recipe: not the router, the embedding, the output layer, a norm or a bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from precc.graph.model import ModelGraph, Tensor
from precc.syntax.words import Role

GROUPED = "mlp.experts."
SEQUENTIAL = "mlp.experts.local_experts."
"""How the experts' paths begin with and without `--moe-grouped-gemm`."""

_FC = {"gate": "linear_fc1", "up": "linear_fc1", "gate_up": "linear_fc1", "down": "linear_fc2"}

_SUFFIXES: dict[Role, dict[str, str]] = {
    Role.ROUTED_EXPERTS: {part: f"{GROUPED}{name}" for part, name in _FC.items()},
    Role.SHARED_EXPERTS: {part: f"mlp.shared_experts.{name}" for part, name in _FC.items()},
    Role.DENSE_MLP: {part: f"mlp.{name}" for part, name in _FC.items()},
    Role.ATTENTION: {
        "q": "self_attention.linear_qkv",
        "k": "self_attention.linear_qkv",
        "v": "self_attention.linear_qkv",
        "qkv": "self_attention.linear_qkv",
        "o": "self_attention.linear_proj",
        "q_a": "self_attention.linear_q_down_proj",
        "q_b": "self_attention.linear_q_up_proj",
        "kv_a": "self_attention.linear_kv_down_proj",
        "kv_b": "self_attention.linear_kv_up_proj",
    },
    Role.LINEAR_ATTENTION: {
        **dict.fromkeys(("qkvz", "ba", "qkv", "z", "b", "a"), "self_attention.in_proj"),
        "out": "self_attention.out_proj",
    },
    Role.MLA: {"kv_b": "self_attention.linear_kv_up_proj"},
    Role.INDEXER: {
        "wq_b": "self_attention.core_attention.indexer.linear_wq_b",
        "wk": "self_attention.core_attention.indexer.linear_wk",
        "weights_proj": "self_attention.core_attention.indexer.linear_weights_proj",
    },
}


class Module(NamedTuple):
    """The linear layer of a tensor: its path below the layer, and the layer.

    Exactly one of `layer` (the global decoder layer) and `mtp` is set. `suffix` is the path below the layer; that
    of routed experts is the grouped one. `direct` modules of an MTP layer do not stand in its inner layer.
    """

    suffix: str
    layer: int | None = None
    mtp: int | None = None
    direct: bool = False

    @property
    def is_experts(self) -> bool:
        return self.suffix.startswith(GROUPED)


class Names:
    """The names of one model's tensors."""

    def __init__(self, model: ModelGraph) -> None:
        self._mla = any(tensor.part == "kv_b" for tensor in model.tensors)

    def module(self, tensor: Tensor) -> Module | None:
        """The linear layer that multiplies a tensor; None for what no recipe can reach."""
        if not tensor.is_gemm or tensor.outer in (Role.VISION, Role.AUDIO):
            return None
        if tensor.mtp is not None and tensor.part == "fc":
            return Module("eh_proj", mtp=tensor.mtp, direct=True)
        suffix = self._suffix(tensor)
        if suffix is None or (tensor.layer is None and tensor.mtp is None):
            return None
        return Module(suffix, tensor.layer if tensor.mtp is None else None, tensor.mtp)

    def _suffix(self, tensor: Tensor) -> str | None:
        if tensor.role is Role.ATTENTION and tensor.part == "q" and self._mla:
            return "self_attention.linear_q_proj"
        return _SUFFIXES.get(tensor.role, {}).get(tensor.part) if tensor.role is not None else None


def paths(module: Module, layers: range, inner: str) -> Iterator[tuple[str, str]]:
    """The templates of a module's path for the grouped and (experts only) the sequential layout.

    Each is a head and a tail around the local expert's number; the tail is empty where there is none. `layers` are
    the local layer numbers that the module may have; `inner` the name of an MTP layer's inner layer.
    """
    for root in _roots(module, layers, inner):
        yield root + module.suffix, ""
        if module.is_experts:
            yield root + SEQUENTIAL, module.suffix.removeprefix(GROUPED.removesuffix("."))


def _roots(module: Module, layers: range, inner: str) -> Iterator[str]:
    if module.mtp is not None:
        yield f"mtp.layers.{module.mtp}." + ("" if module.direct else f"{inner}.")
        return
    yield from (f"decoder.layers.{local}." for local in layers)
