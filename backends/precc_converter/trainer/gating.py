"""The order of rows in gated attention and in gated delta nets, by the sizes that a configuration gives.

Megatron-Core's gated delta net (`megatron/core/ssm/gated_delta_net.py`) splits one projection into q, k, v, z, b and a,
each for all heads; its gated attention has, in each query group, the queries of all heads, then their gates. Qwen3-Next
stores both head by head: a key head's q, k, v, z, or b, a; a head's query and gate. Qwen3.5 stores the former as
Megatron-Core has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from precc.graph.model import ModelGraph, Tensor
from precc.syntax.words import Role
from precc_converter.trainer.regrouping import Regrouping


@dataclass(frozen=True, slots=True)
class Gating:
    """The sizes of one model. `groups` are its query groups, each of `heads` heads of `width` rows.

    A gated delta net has `keys` heads of `key` rows for q and for k, and `values` of `value` rows for v and for z.
    """

    groups: int
    heads: int
    width: int
    keys: int = 0
    key: int = 0
    values: int = 0
    value: int = 0

    @classmethod
    def of(cls, model: ModelGraph) -> Gating:
        """The sizes that the configuration of a model gives."""
        facts: Mapping[str, Any] = model.config
        groups = facts.get("num_key_value_heads", 1)
        heads = facts.get("num_attention_heads", groups)
        delta = (facts.get(f"linear_{fact}", 0) for fact in _DELTA)
        return cls(groups, heads // groups, facts.get("head_dim") or 0, *delta)

    def is_delta_net(self, tensor: Tensor) -> bool:
        """Whether a tensor is part of a gated delta net."""
        return bool(self.values) and (tensor.role is Role.LINEAR_ATTENTION or Role.LINEAR_ATTENTION in tensor.within)

    def regrouping(self, tensor: Tensor) -> Regrouping | None:
        """How the rows of a tensor are reordered; None where they are not."""
        if tensor.part == "q" and tensor.role is Role.ATTENTION and self._is_gated(tensor):
            return Regrouping(self.groups, self.heads, (self.width, self.width))
        if not self.is_delta_net(tensor) or tensor.part not in ("qkvz", "ba"):
            return None
        each = self.values // self.keys
        sizes = (self.key, self.key, each * self.value, each * self.value) if tensor.part == "qkvz" else (each, each)
        return Regrouping(1, self.keys, sizes)

    def sections(self, tensor: Tensor) -> tuple[int, ...]:
        """The rows that tensor parallelism splits by themselves, of what a gated delta net has in one parameter."""
        if not self.is_delta_net(tensor):
            return ()
        query, value = self.keys * self.key, self.values * self.value
        joined = (query, query, value, value, self.values, self.values)
        return joined if tensor.part in _INTO else joined[:3] if tensor.part == "conv" else ()

    def _is_gated(self, tensor: Tensor) -> bool:
        return bool(self.width) and tensor.shape[0] == 2 * self.groups * self.heads * self.width


_DELTA = ("num_key_heads", "key_head_dim", "num_value_heads", "value_head_dim")
_INTO = ("qkvz", "ba", "qkv", "z", "b", "a")
"""The parts of what goes into a gated delta net."""
