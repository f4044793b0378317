"""What SGLang can know of one tensor: its module's method, what is stored, how inputs are scaled."""

from __future__ import annotations

from typing import NamedTuple

from precc.contract import Contract, Entry
from precc.formats import Decision
from precc_sglang.families import (
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    INT4,
    MXFP4,
    MXFP4_WEIGHTS,
    MXFP8,
    NVFP4_STATIC,
    NVFP4_TOKEN,
    NVFP4_WEIGHTS,
    Family,
    adaptive_words,
    family_of,
)
from precc_sglang.methods import choice_of
from precc_sglang.names import Kind, Module, module_of

EXACT = "exact math"

SCALING: dict[str, str] = {
    MXFP8.name: "1×32",
    FP8_TENSOR.name: "static",
    FP8_CHANNEL.name: "per token",
    NVFP4_TOKEN.name: f"per token, {EXACT}",
    NVFP4_STATIC.name: f"static, {EXACT}",
    NVFP4_WEIGHTS.name: "bf16",
    INT4.name: "bf16",
    MXFP4_WEIGHTS.name: "bf16",
    MXFP4.name: "1×32",
}
"""How the inputs of each family are scaled; block FP8 depends on the scale's type."""

CACHED_PARTS = frozenset({"k", "v", "kv_a"})
"""The projections whose results stand in the KV cache."""


class Served(NamedTuple):
    """How the server runs one tensor: no trainer's fact and no backward mode is in it.

    `inputs` says how activations are scaled; `cache` is the KV cache's format, for the projections that fill it;
    `dtype` the one of the server, in which modules that are not quantized multiply and all others answer.
    """

    method: str
    stored: tuple[str, ...] = ()
    inputs: str = ""
    cache: str = ""
    dtype: str = ""

    def __str__(self) -> str:
        words = [self.method]
        if self.stored:
            words.append(f"stored as {', '.join(self.stored)}")
        if self.inputs:
            words.append(f"inputs {self.inputs}")
        if self.cache:
            words.append(f"{self.cache} KV cache")
        if self.dtype:
            words.append(f"dtype {self.dtype}")
        return "; ".join(words)


def method_words(family: Family) -> str:
    """A family's name, with its group size where that is a choice."""
    return f"{family.name} group {family.group}" if family.group else family.name


def has_dtype(module: Module | None) -> bool:
    """Whether a module takes the server's dtype: all that ask for a method; routers choose their own."""
    return module is not None and module.kind is not Kind.NEVER


def served(entry: Entry, kv_cache: str, module: Module | None) -> Served:
    """What the contract wants of the server for one entry."""
    decision = entry.decision
    cache = kv_cache if entry.tensor.is_gemm and entry.tensor.part in CACHED_PARTS else ""
    dtype = _dtype(decision) if has_dtype(module) else ""
    family = family_of(decision)
    if family is None:
        return Served(str(decision), cache=cache, dtype=dtype)
    return Served(method_words(family), family.stored, _inputs(entry, family), cache, dtype)


def _dtype(decision: Decision) -> str:
    """BF16, or what a rule says instead; a protected weight is stored as it was and multiplied like the others."""
    return "bf16" if decision.is_quantized or decision.input is None else decision.weight.format


def _inputs(entry: Entry, family: Family) -> str:
    operand = entry.decision.input
    if family is FP8_BLOCK:
        return f"{entry.decision.weight.scale} scales"
    words = [SCALING.get(family.name, "")]
    if operand is not None and operand.four_over_six is not None:
        words.append(adaptive_words(operand.four_over_six))
    return ", ".join(filter(None, words))


def decides(contract: Contract) -> list[Served]:
    """What SGLang can know of each entry, in the contract's order."""
    choice = choice_of(contract)
    modules = (module_of(entry.tensor, choice.built) if choice else None for entry in contract.entries)
    return [served(entry, contract.kv_cache, module) for entry, module in zip(contract.entries, modules, strict=True)]
