"""The model graph: every stored tensor of a model, with what decides about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, Literal, TypeAlias

from precc.graph.forms import BF16, Block, Form
from precc.syntax.words import Role

EXPERT = "{e}"
"""The path component that stands for an expert's number in a tensor that is a range of experts."""

Engine: TypeAlias = Literal["megatron", "sglang"]
Parallel: TypeAlias = Literal["column", "row"]


@dataclass(frozen=True)
class Tensor:
    """One logical weight, or the same weight of a range of experts.

    `path` are the components of the Hugging Face module name; the expert's number is `EXPERT`. `parameter` is the
    last word of the stored name: `weight`, `bias`, or empty for a bare parameter (`A_log`, a stacked 3-D expert
    tensor), whose own name is then the last component of `path`. `shape` is that of one expert's tensor.

    `role` is the tensor's own role and `within` the larger things it is part of (the attention of `kv_b_proj`, the
    multi-token-prediction layer). `part` says which weight of that role it is: `q k v o qkv q_a q_b kv_a kv_b gate
    up down gate_up router fc embed head norm bias …`; engines name tensors by role and part.

    `contracted` are the axes that some GEMM sums over: one for a linear layer, two for a weight that MLA absorption
    multiplies from both sides, none for what is no GEMM operand. `parallel` is how tensor parallelism (for experts:
    expert tensor parallelism) splits it. `fused` names, for each engine that fuses it, the one GEMM it is part of;
    members share a decision there. `scale_group` names the tensors that share one NVFP4 outer scale.

    `protected` tensors keep their stored dtype unless a rule names them: `mtp`, `vision` and `audio` for whole
    subtrees (`outer`), and a word for the tensor's own kind.

    In a stacked 3-D expert tensor of gate and up these stand one after the other along the output axis, or row by row
    in turn (`interleaved`).
    """

    path: tuple[str, ...]
    parameter: str
    shape: tuple[int, ...]
    role: Role | None
    part: str
    within: frozenset[Role] = frozenset()
    layer: int | None = None
    mtp: int | None = None
    experts: range | None = None
    contracted: tuple[int, ...] = ()
    parallel: Parallel | None = None
    fused: tuple[tuple[Engine, str], ...] = ()
    scale_group: str | None = None
    protected: bool = False
    outer: Role | None = None
    outer_depth: int = 0
    tied_to: str | None = None
    form: Form = BF16
    interleaved: bool = False

    @property
    def module(self) -> str:
        """The module name, a range of experts written `{0..255}`."""
        return ".".join(_expert(self.experts) if part == EXPERT else part for part in self.path)

    @property
    def name(self) -> str:
        """The stored name, a range of experts written `{0..255}`."""
        return f"{self.module}.{self.parameter}" if self.parameter else self.module

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The components that selectors see: the module, and the parameter where it is not `weight`.

        A range of experts is seen as its first.
        """
        first = "" if self.experts is None else str(self.experts.start)
        path = self.path if self.experts is None else tuple(first if word == EXPERT else word for word in self.path)
        return path if self.parameter in ("", "weight") else (*path, self.parameter)

    @cached_property
    def word_set(self) -> frozenset[str]:
        """The same without order."""
        return frozenset(self.words)

    def modules(self) -> Iterator[str]:
        """The module name of each expert's tensor, or the one name."""
        if self.experts is None:
            yield self.module
        else:
            head, tail = ".".join(self.path).split(EXPERT)
            yield from (f"{head}{expert}{tail}" for expert in self.experts)

    def names(self) -> Iterator[str]:
        """The stored name of each expert's tensor, or the one name: of a bare parameter that of its module."""
        return (f"{module}.{self.parameter}" if self.parameter else module for module in self.modules())

    @cached_property
    def count(self) -> int:
        """How many stored tensors this is (scales of a stored low precision left aside)."""
        return 1 if self.experts is None else len(self.experts)

    @cached_property
    def parameters(self) -> int:
        """Elements over all experts of the range."""
        return self.count * prod(self.shape)

    @property
    def is_gemm(self) -> bool:
        return bool(self.contracted)

    @property
    def contraction(self) -> int:
        """The axis that blocks run along; the last one where two are contracted."""
        return self.contracted[-1]

    @property
    def stacked(self) -> int:
        """How many experts' matrices stand one behind the other in this tensor; 0 if it is no stack."""
        is_stack = self.role is Role.ROUTED_EXPERTS and self.is_gemm and len(self.shape) == 3
        return self.shape[0] if is_stack else 0

    def has_role(self, role: Role) -> bool:
        return role is self.role or role in self.within

    @property
    def bucket(self) -> Role | None:
        """The role under which plans count it: the tower or MTP layer it stands in, else its own."""
        return self.outer or self.role

    def narrowed(self, experts: range) -> Tensor:
        """The same weight of fewer experts."""
        return replace(self, experts=experts)

    @property
    def dtype(self) -> str:
        """What its stored numbers are: `bf16`, `fp32`, `fp8`, `nvfp4`…"""
        return self.form.dtype

    @property
    def stored_block(self) -> Block | None:
        """What shares a scale in the checkpoint."""
        return self.form.block

    def stored(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The stored tensors of one expert: their words, as `precc.graph.layouts` says, and their shapes."""
        from precc.graph.layouts import stored_shapes

        axis = self.contraction if self.contracted else len(self.shape) - 1
        return stored_shapes(self.form, self.shape, axis)

    def stored_shapes(self) -> Iterator[tuple[int, ...]]:
        """The shapes of the stored tensors of one expert, codes first: one, unless it is stored in low precision."""
        return (shape for _, shape in self.stored())


def natural(name: str) -> list[tuple[bool, int, str]]:
    """This is the key that orders names with their numbers compared as numbers."""
    return [(word.isdecimal(), int(word) if word.isdecimal() else 0, word) for word in re.split(r"(\d+)", name)]


def _expert(experts: range | None) -> str:
    if experts is None:
        return EXPERT
    if len(experts) == 1:
        return str(experts.start)
    return f"{{{experts.start}..{experts.stop - 1}}}"


@dataclass(frozen=True)
class ModelGraph:
    """Every stored tensor of one model, in checkpoint order.

    `layers` is the number of decoder layers; MTP layers are not among them. `config` holds the facts of
    `config.json` that engines need beside the tensors (attention kind, widths, expert counts, ties).
    """

    name: str
    architecture: str
    family: str
    layers: int
    tensors: tuple[Tensor, ...] = field(repr=False)
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def parameters(self) -> int:
        """Elements of all weights, scales left aside."""
        return sum(tensor.parameters for tensor in self.tensors)

    @cached_property
    def stored_tensors(self) -> int:
        """Tensors in the checkpoint, scales of stored FP8 weights counted."""
        return sum(tensor.count * sum(1 for _ in tensor.stored_shapes()) for tensor in self.tensors)

    @cached_property
    def stored_elements(self) -> int:
        """Elements in the checkpoint, scales of stored FP8 weights counted."""
        return sum(tensor.count * sum(map(prod, tensor.stored_shapes())) for tensor in self.tensors)

    @cached_property
    def expert_count(self) -> int:
        """Routed experts a layer, stored one by one or stacked; 0 for a dense model."""
        return max((t.stacked if t.experts is None else t.experts.stop for t in self.tensors), default=0)

    @cached_property
    def mtp_layers(self) -> int:
        return max((t.mtp + 1 for t in self.tensors if t.mtp is not None), default=0)
