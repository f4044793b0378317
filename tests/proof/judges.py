"""Who judges each target: its engine's installed code, in a process of its own; for the converter, its read-back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TypeAlias

from precc import pipeline
from precc.backend import Judgement, Unsupported, find_backend
from precc.contract import Contract

Judging: TypeAlias = Callable[[Contract, Mapping[str, str]], Judgement]
"""A contract and the artifacts of all targets (path → text) → what the engine makes of them."""

TARGETS: dict[str, str] = {
    "te": "Megatron-Core and TransformerEngine",
    "sglang": "SGLang",
    "converter": "The converter",
}


@contextmanager
def judge(target: str) -> Iterator[Judging]:
    """This starts a target's judge. Raises EngineUnavailable where its engine is not installed."""
    if target == "te":
        from precc_te.upstream import Judge as Trainer

        with Trainer() as trainer:
            yield trainer
    elif target == "sglang":
        from precc_sglang.upstream import Judge as Server

        with Server() as server:
            yield server
    else:
        yield read_back


def read_back(contract: Contract, artifacts: Mapping[str, str]) -> Judgement:
    """What the converter's own parser makes of a plan."""
    engines = {"precc": version("precc")}
    try:
        found = pipeline.read_back(contract, find_backend("converter"), artifacts)
    except Unsupported as refusal:
        return Judgement(engines, 0, 0, refusal.findings)
    return Judgement(engines, found.tensors, found.agree, found.findings, (READ_BACK,))


READ_BACK = "the plan parsed, and every line compared with the contract and with what the server's loader asks for"
