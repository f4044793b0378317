"""From a family's table and a model's facts to its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from precc.graph.families.table import Block, Facts, Family, Row
from precc.graph.model import EXPERT, Engine, Tensor
from precc.graph.storage import Storage
from precc.records import record
from precc.syntax.words import Role

SIZES: Mapping[str, Callable[[Facts], int]] = {
    "vocab": lambda f: f["vocab_size"],
    "hidden": lambda f: f["hidden_size"],
    "head": lambda f: f["head_dim"],
    "query": lambda f: f["num_attention_heads"] * f["head_dim"],
    "key_value": lambda f: f["num_key_value_heads"] * f["head_dim"],
    "dense": lambda f: f["intermediate_size"],
    "expert": lambda f: f["moe_intermediate_size"],
    "experts": lambda f: f["num_experts"],
    "shared": lambda f: f["shared_expert_intermediate_size"],
    "q_rank": lambda f: f["q_lora_rank"],
    "kv_rank": lambda f: f["kv_lora_rank"],
    "kv_rank_and_rope": lambda f: f["kv_lora_rank"] + f["qk_rope_head_dim"],
    "mla_query": lambda f: f["num_attention_heads"] * (f["qk_nope_head_dim"] + f["qk_rope_head_dim"]),
    "mla_key_value": lambda f: f["num_attention_heads"] * (f["qk_nope_head_dim"] + f["v_head_dim"]),
    "mla_value": lambda f: f["num_attention_heads"] * f["v_head_dim"],
    "index_heads": lambda f: f["index_n_heads"],
    "index_head": lambda f: f["index_head_dim"],
    "index_query": lambda f: f["index_n_heads"] * f["index_head_dim"],
    "one": lambda f: 1,
}

_PARAMETERS = ("weight", "bias")

Shape: TypeAlias = tuple[int, ...]


@record
class Place:
    """One repetition of a block: its number, what stands for `{l}`, and so its prefix."""

    block: Block
    index: int
    prefix: str

    @property
    def layer(self) -> int | None:
        """The decoder layer, if this is one."""
        return self.index if self.block.is_decoder else None


def expand(family: Family, facts: Facts, storage: Storage) -> tuple[Tensor, ...]:
    """Every tensor of a model, in checkpoint order."""
    sizes = _Sizes({**SIZES, **family.sizes}, facts)
    layers = _LayerSets(facts)
    return tuple(
        _tensor(row, place, sizes.shape(row.shape), range(facts.get("num_experts", 0)), storage, facts)
        for block in family.blocks
        for place in _places(block, facts)
        for row in block.rows
        if _exists(row, facts) and layers.has(row, place)
    )


def sample(family: Family) -> Iterator[Tensor]:
    """Every row of a family once, as if it had one layer, one MTP layer and one expert, all of size one."""
    one: dict[str, Any] = {"num_hidden_layers": 1}
    for block in family.blocks:
        for place in _places(block, {**one, block.over: 1}):
            for row in block.rows:
                yield _tensor(row, place, (1,) * len(row.shape), range(1), Storage(), {})


def _places(block: Block, facts: Facts) -> Iterator[Place]:
    first = facts[block.after] if block.after else 0
    for index in range(facts[block.over] if block.over else 1):
        yield Place(block, index, block.prefix.replace("{l}", str(first + index)))


def _exists(row: Row, facts: Facts) -> bool:
    return (not row.when or bool(facts.get(row.when))) and not (row.unless and facts.get(row.unless))


def _tensor(row: Row, place: Place, shape: Shape, experts: range, storage: Storage, facts: Facts) -> Tensor:
    below, parameter = _split(row.name)
    above = tuple(place.prefix.split(".")) if place.prefix else ()
    path = above + below
    outer = place.block.outer
    return Tensor(
        path=path,
        parameter=parameter,
        shape=shape,
        role=row.role,
        part=row.part,
        within=row.within | {outer} if outer else row.within,
        layer=place.layer,
        mtp=place.index if outer is Role.MTP else None,
        experts=experts if EXPERT in below else None,
        contracted=row.contracted,
        parallel=row.parallel,
        fused=_fused(row, place.prefix),
        scale_group=_below(place.prefix, row.scale_group) or None,
        protected=row.protected,
        outer=outer,
        outer_depth=place.block.outer_depth,
        tied_to=row.tied_to if row.tied_to and facts.get("tie_word_embeddings") else None,
        form=storage.of(row, path, outer),
        interleaved=row.interleaved,
    )


def _fused(row: Row, prefix: str) -> tuple[tuple[Engine, str], ...]:
    megatron: tuple[tuple[Engine, str], ...] = (("megatron", _below(prefix, row.megatron)),)
    sglang: tuple[tuple[Engine, str], ...] = (("sglang", _below(prefix, row.sglang)),)
    return (megatron if row.megatron else ()) + (sglang if row.sglang else ())


def _below(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else name


@cache
def _split(name: str) -> tuple[tuple[str, ...], str]:
    """A stored name as path and parameter. An expert's component is `EXPERT` itself, compared by identity."""
    path = tuple(EXPERT if part == EXPERT else part for part in name.split("."))
    return (path[:-1], path[-1]) if path[-1] in _PARAMETERS else (path, "")


class _Sizes:
    """Symbolic sizes of one model, each worked out once."""

    def __init__(self, table: Mapping[str, Callable[[Facts], int]], facts: Facts) -> None:
        self._table = table
        self._facts = facts
        self._known: dict[tuple[str, ...], Shape] = {}

    def shape(self, symbols: tuple[str, ...]) -> Shape:
        if symbols not in self._known:
            self._known[symbols] = tuple(map(self._size, symbols))
        return self._known[symbols]

    def _size(self, symbol: str) -> int:
        times, _, name = symbol.rpartition("*")
        return int(times or 1) * self._table[name](self._facts)


class _LayerSets:
    """Which decoder layers have a row, by the fact that lists them."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[str, frozenset[int]] = {}

    def has(self, row: Row, place: Place) -> bool:
        if not row.layers or place.layer is None:
            return True
        if row.layers not in self._known:
            self._known[row.layers] = frozenset(self._facts[row.layers])
        return place.layer in self._known[row.layers]
