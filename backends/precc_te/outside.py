"""Megatron's parameters that no recipe matches: routers, the embedding, the output layer, attention sinks.

A recipe matches TransformerEngine's linear layers by the paths of modules; these are plain parameters of others.
"""

from __future__ import annotations

from collections.abc import Mapping

from precc.contract import Contract, Entry
from precc.graph.model import Tensor
from precc.syntax.words import Role
from precc_te.names import Names
from precc_te.rules.p701_architecture import MISSING
from precc_te.versions import engine_of

WHY = "a parameter that no recipe matches"

_EMBEDDING = "embedding.word_embeddings.weight"

_MODEL: Mapping[str, str] = {"embed": _EMBEDDING, "head": "output_layer.weight"}
"""By part: what stands beside the decoder."""

_LAYER: Mapping[tuple[Role | None, str], str] = {
    (Role.ROUTER, "router"): "mlp.router.weight",
    (Role.ROUTER, "bias"): "mlp.router.expert_bias",
    (None, "sinks"): "self_attention.core_attention.softmax_offset",
    (None, "expert_gate"): "mlp.shared_experts.gate_weight",
}
"""By role and part: what stands in a layer (`router.py`, `dot_product_attention.py`, `shared_experts.py` of
Megatron-Core). `expert_bias` is a buffer."""


def parameter_of(contract: Contract, entry: Entry) -> str | None:
    """The full name of the parameter, as at one pipeline stage; None for what a recipe matches or none is known of."""
    tensor, model = entry.tensor, contract.model
    if tensor.outer in (Role.VISION, Role.AUDIO) or model.family in MISSING or Names(model).module(tensor) is not None:
        return None
    if tensor.part in _MODEL:
        return _EMBEDDING if tensor.tied_to else _MODEL[tensor.part]
    below = _below(tensor)
    if below is None or (tensor.layer is None and tensor.mtp is None):
        return None
    if tensor.mtp is None:
        return f"decoder.layers.{tensor.layer}.{below}"
    return f"mtp.layers.{tensor.mtp}.{engine_of(contract.train).megatron.mtp_inner}.{below}"


def _below(tensor: Tensor) -> str | None:
    if tensor.path[-1] == "router" and tensor.parameter == "bias":
        return "mlp.router.bias"
    return _LAYER.get((tensor.role, tensor.part))
