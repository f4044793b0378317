"""What SGLang can know of one tensor: its module's method, what is stored, how inputs are scaled."""

from __future__ import annotations

from dataclasses import dataclass

from precc.contract import Contract, Entry
from precc_sglang.families import (
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    INT4,
    MXFP8,
    NVFP4_STATIC,
    NVFP4_TOKEN,
    NVFP4_WEIGHTS,
    Family,
    adaptive_words,
    family_of,
)

EXACT = "exact math"

SCALING: dict[str, str] = {
    MXFP8.name: "1×32",
    FP8_TENSOR.name: "static",
    FP8_CHANNEL.name: "per token",
    NVFP4_TOKEN.name: f"per token, {EXACT}",
    NVFP4_STATIC.name: f"static, {EXACT}",
    NVFP4_WEIGHTS.name: "bf16",
    INT4.name: "bf16",
}
"""How the inputs of each family are scaled; block FP8 depends on the scale's type."""

CACHED_PARTS = frozenset({"k", "v", "kv_a"})
"""The projections whose results stand in the KV cache."""


@dataclass(frozen=True, slots=True)
class Served:
    """How the server runs one tensor: no trainer's fact and no backward mode is in it.

    `inputs` says how activations are scaled; `cache` is the KV cache's format, for the projections that fill it.
    """

    method: str
    stored: tuple[str, ...] = ()
    inputs: str = ""
    cache: str = ""

    def __str__(self) -> str:
        words = [self.method]
        if self.stored:
            words.append(f"stored as {', '.join(self.stored)}")
        if self.inputs:
            words.append(f"inputs {self.inputs}")
        if self.cache:
            words.append(f"{self.cache} KV cache")
        return "; ".join(words)


def method_words(family: Family) -> str:
    """A family's name, with its group size where that is a choice."""
    return f"{family.name} group {family.group}" if family.group else family.name


def served(entry: Entry, kv_cache: str) -> Served:
    """What the contract wants of the server for one entry."""
    decision = entry.decision
    cache = kv_cache if entry.tensor.is_gemm and entry.tensor.part in CACHED_PARTS else ""
    family = family_of(decision)
    if family is None:
        return Served(str(decision), cache=cache)
    return Served(method_words(family), family.stored, _inputs(entry, family), cache)


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
    return [served(entry, contract.kv_cache) for entry in contract.entries]
