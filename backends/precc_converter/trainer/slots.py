"""Where a tensor stands in the trainer: the Megatron-Core parameter that holds it, a function of role and part.

The names are those of `GPTModel.named_parameters()` (and of the router's `expert_bias`, a buffer) with
TransformerEngine layer specs, grouped experts and the MTP block of Megatron-Core 0.16; `spelling` has the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.syntax.words import Role
from precc_converter.trainer.stacks import stacked_weight

INNER = "transformer_layer"
"""The decoder layer within an MTP layer."""

_EMBEDDING = "embedding.word_embeddings.weight"
_HEAD = "output_layer.weight"
_FINAL_NORM = "decoder.final_layernorm.weight"

_Module = tuple[str, int]
"""A module below the layer, and the place of the tensor's rows among those that share its weight."""


def _gated(prefix: str) -> dict[str, _Module]:
    return {
        "gate": (f"{prefix}.linear_fc1", 0),
        "up": (f"{prefix}.linear_fc1", 1),
        "gate_up": (f"{prefix}.linear_fc1", 0),
        "down": (f"{prefix}.linear_fc2", 0),
    }


_QUERY_KEY_VALUE = {part: ("self_attention.linear_qkv", order) for order, part in enumerate("qkv")}
_LATENT = {
    "q": ("self_attention.linear_q_proj", 0),
    "q_a": ("self_attention.linear_q_down_proj", 0),
    "q_b": ("self_attention.linear_q_up_proj", 0),
    "kv_a": ("self_attention.linear_kv_down_proj", 0),
}
_INDEXER = "self_attention.core_attention.indexer"

_MODULES: dict[Role | None, dict[str, _Module]] = {
    Role.ROUTED_EXPERTS: _gated("mlp.experts"),
    Role.SHARED_EXPERTS: _gated("mlp.shared_experts"),
    Role.DENSE_MLP: _gated("mlp"),
    Role.ATTENTION: {**_QUERY_KEY_VALUE, "o": ("self_attention.linear_proj", 0)},
    Role.MLA: {"kv_b": ("self_attention.linear_kv_up_proj", 0)},
    Role.INDEXER: {part: (f"{_INDEXER}.linear_{part}", 0) for part in ("wq_b", "wk", "weights_proj")},
    Role.LINEAR_ATTENTION: {
        **{part: ("self_attention.in_proj", order) for order, part in enumerate(("qkvz", "ba"))},
        **{part: ("self_attention.in_proj", order) for order, part in enumerate(("qkv", "z", "b", "a"))},
        "out": ("self_attention.out_proj", 0),
    },
    Role.ROUTER: {"router": ("mlp.router", 0)},
    None: {"fc": ("eh_proj", 0)},
}

_BESIDE = {
    (Role.LINEAR_ATTENTION, "conv"): "self_attention.conv1d.weight",
    (Role.LINEAR_ATTENTION, "decay"): "self_attention.A_log",
    (Role.LINEAR_ATTENTION, "bias"): "self_attention.dt_bias",
    (Role.SHARED_EXPERTS, "expert_gate"): "mlp.shared_experts.gate_weight",
}
"""What is no weight of a GEMM: the convolution and the decay of a gated delta net, and the gate of a shared expert."""

OUT_NORM = "self_attention.out_norm.weight"
"""The norm of a gated delta net before its output projection."""

_FUSED_NORMS = {
    "input_layernorm": ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"),
    "post_attention_layernorm": ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"),
    "q_a_layernorm": ("self_attention.linear_q_up_proj.layer_norm_weight", "self_attention.q_layernorm.weight"),
    "kv_a_layernorm": ("self_attention.linear_kv_up_proj.layer_norm_weight", "self_attention.kv_layernorm.weight"),
}
"""Norms that TransformerEngine's layers fuse into the linear layer that follows, and their names where they stand
alone: always before a latent attention and before routed experts."""

_SANDWICHED = {
    "post_attention_layernorm": ("self_attention.linear_proj.post_layernorm.weight", ""),
    "pre_feedforward_layernorm": ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"),
    "post_feedforward_layernorm": ("mlp.linear_fc2.post_layernorm.weight", ""),
}
"""Where attention and the MLP have a norm behind them as well: in the linear layers that Megatron-Bridge has for it."""

_NORMS = {
    "q_norm": "self_attention.q_layernorm",
    "k_norm": "self_attention.k_layernorm",
    "enorm": "enorm",
    "hnorm": "hnorm",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
}
_MTP_OWN = ("enorm", "hnorm", "eh_proj", "final_layernorm")
"""What stands in the MTP layer itself, not in its inner layer."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The trainer's parameter that holds a tensor, and the place of its rows there.

    `alone` is the same parameter's name where a norm is not fused into the linear layer that follows it. Tensors
    of equal slots are copies of each other: tied ones, and what an MTP layer stores anew.
    """

    name: str
    order: int = 0
    alone: str = ""


_GATED = ("qkvz", "qkv", "ba", "z")
"""The parts by which a gated delta net is known: other linear attentions have projections of their own."""


class UnmappedTensor(Exception):
    """A tensor that the trainer has no known name for."""


class Slots:
    """The slots of one model's tensors."""

    def __init__(self, model: ModelGraph) -> None:
        sandwiched = any("pre_feedforward_layernorm" in tensor.path for tensor in model.tensors)
        self._fused_norms = {**_FUSED_NORMS, **_SANDWICHED} if sandwiched else _FUSED_NORMS
        self._latent = any(tensor.part == "kv_b" for tensor in model.tensors)
        self._gated = {_block(tensor) for tensor in model.tensors if tensor.part in _GATED}
        self._routed = {_block(tensor) for tensor in model.tensors if tensor.part == "router"}
        self._weights = {tensor.path: tensor for tensor in model.tensors if tensor.is_gemm}
        self._has_head = any(tensor.path[-1] == "lm_head" and not tensor.tied_to for tensor in model.tensors)

    def of(self, tensor: Tensor) -> Slot:
        """This is the slot of one tensor. Raises UnmappedTensor."""
        if tensor.part == "embed" or tensor.part == "head":
            return Slot(_HEAD if tensor.part == "head" and self._has_head else _EMBEDDING)
        if tensor.path[-1] == "norm" and tensor.layer is None and tensor.mtp is None:
            return Slot(_FINAL_NORM)
        if tensor.layer is None and tensor.mtp is None:
            raise _unmapped(tensor)
        below = self._norm(tensor) if tensor.role is Role.NORM else self._parameter(tensor)
        root = _root(tensor, below.name)
        return Slot(root + below.name, below.order, root + below.alone if below.alone else "")

    def _norm(self, tensor: Tensor) -> Slot:
        word = tensor.path[-1]
        if Role.INDEXER in tensor.within:
            return Slot(f"{_INDEXER}.{word}.{tensor.parameter}")
        if Role.LINEAR_ATTENTION in tensor.within and _block(tensor) in self._gated:
            return Slot(OUT_NORM)
        if tensor.path[-2:] in (("shared_head", "norm"), ("mtp", "norm")):
            return Slot("final_layernorm.weight")
        if word in _NORMS:
            return Slot(f"{_NORMS[word]}.weight")
        if word not in self._fused_norms:
            raise _unmapped(tensor)
        fused, alone = self._fused_norms[word]
        if word == "input_layernorm" and _block(tensor) in self._gated:
            fused = "self_attention.in_proj.layer_norm_weight"
        return Slot(alone) if self._stands_alone(word, tensor) else Slot(fused, alone=alone)

    def _stands_alone(self, word: str, tensor: Tensor) -> bool:
        if word == "post_attention_layernorm":
            return _block(tensor) in self._routed
        return word == "input_layernorm" and self._latent

    def _parameter(self, tensor: Tensor) -> Slot:
        if tensor.role is Role.ROUTER and tensor.part == "bias":
            return Slot("mlp.router.expert_bias")
        if tensor.part == "sinks":
            return Slot("self_attention.core_attention.softmax_offset")
        for role, part in _BESIDE:
            if role in tensor.within and tensor.part == part and tensor.role is None and self._is_known(tensor):
                return Slot(_BESIDE[role, part])
        stack = stacked_weight(tensor)
        module, order = self._module(self._weights.get(stack or tensor.path, tensor))
        number = EXPERT if tensor.experts is not None or stack else ""
        word = tensor.parameter or ("weight" if tensor.is_gemm else "bias")
        return Slot(f"{module}.{word}{number}", order)

    def _is_known(self, tensor: Tensor) -> bool:
        """Whether what stands beside a mixer's projections is that of a gated delta net, where it is a mixer's."""
        return Role.LINEAR_ATTENTION not in tensor.within or _block(tensor) in self._gated

    def _module(self, tensor: Tensor) -> _Module:
        modules = _MODULES.get(tensor.role, {})
        if self._latent and tensor.role is Role.ATTENTION:
            modules = {**modules, **_LATENT}
        if tensor.part not in modules:
            raise _unmapped(tensor)
        return modules[tensor.part]


def _root(tensor: Tensor, below: str) -> str:
    if tensor.mtp is None:
        return f"decoder.layers.{tensor.layer}."
    own = below.split(".")[0] in _MTP_OWN
    return f"mtp.layers.{tensor.mtp}." if own else f"mtp.layers.{tensor.mtp}.{INNER}."


def _block(tensor: Tensor) -> tuple[int | None, int | None]:
    return tensor.layer, tensor.mtp


def _unmapped(tensor: Tensor) -> UnmappedTensor:
    what = tensor.role.value if tensor.role else "of no role"
    return UnmappedTensor(f"no Megatron-Core name is known for {tensor.name} ({what}, {tensor.part})")
