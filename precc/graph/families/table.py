"""The words a family's table is written in: rows, blocks of rows, families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from precc.graph.families.fields import Field
from precc.graph.model import Parallel
from precc.syntax.words import Role

Facts: TypeAlias = Mapping[str, Any]
"""What `config.json` says, under one name for all families (`num_experts`, whatever a family calls it)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of tensor of a family.

    `name` is the stored name below the prefix of the block, an expert's number written `{e}`; `shape` the
    axes in symbolic sizes (`hidden`, `2*hidden`). `dtype` is the stored one where it is not the model's.
    `layers` names the fact that lists the decoder layers that have it; empty for all. It exists `when` one
    fact holds, `unless` another does. `megatron`, `sglang` and `scale_group` name, below the prefix too, what
    it is fused with. The other fields are those of `Tensor`.
    """

    name: str
    shape: tuple[str, ...]
    role: Role | None
    part: str
    within: frozenset[Role] = frozenset()
    contracted: tuple[int, ...] = ()
    parallel: Parallel | None = None
    megatron: str = ""
    sglang: str = ""
    scale_group: str = ""
    protected: bool = False
    tied_to: str = ""
    dtype: str = ""
    layers: str = ""
    when: str = ""
    unless: str = ""
    interleaved: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that share a prefix.

    The block repeats for `{l}` in the prefix as often as the fact `over` says, counted on from the fact
    `after`. `outer` is the tower or multi-token-prediction subtree that it lies in, whose root is the first
    `outer_depth` components of the path; only a repeated block outside such a subtree is a decoder layer.
    """

    prefix: str
    rows: tuple[Row, ...]
    over: str = ""
    after: str = ""
    outer: Role | None = None
    outer_depth: int = 0

    @property
    def is_decoder(self) -> bool:
        """Whether each repetition is a decoder layer."""
        return bool(self.over) and self.outer is None


@dataclass(frozen=True, slots=True)
class Family:
    """One model family: how it is recognised, what it needs to know, and its table.

    `derive` gives the facts that follow from those read (which layers are sparse, widths) and raises
    `FieldError` where they contradict each other. `sizes` are symbolic sizes that only this family has.
    `small` gives the facts that a small model of it has beside the narrow widths that all families share.
    `text_model_type` is what a multimodal wrapper calls its `text_config`; empty for a language model by itself.
    """

    name: str
    architectures: tuple[str, ...]
    model_types: tuple[str, ...]
    fields: tuple[Field, ...]
    blocks: tuple[Block, ...]
    derive: Callable[[Facts], Facts]
    sizes: Mapping[str, Callable[[Facts], int]] = field(default_factory=dict)
    small: Callable[[Facts], Facts] = lambda facts: {}
    text_model_type: str = ""
