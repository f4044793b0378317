"""Contracts and plans that the converter's tests start from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from precc import pipeline
from precc.api import compile_source
from precc.backend import Unsupported
from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic
from precc.source import SourceFile
from precc_converter import backend
from precc_converter.plan import PLAN_PATH, plan_text, totals

TWO_LINES = "kv_b_proj: bf16\nexperts.*: nvfp4 per_token\n"
END_TO_END_MXFP8 = "default: mxfp8\nlayers[-15%:]: bf16\n@shared_experts?, @mla?: bf16\n"


@cache
def compiled(policy: str, model: str) -> Contract:
    """The contract of a policy text."""
    return compile_source(SourceFile("p.prec", policy), model)


def emitted(contract: Contract) -> dict[str, Any]:
    """The plan of a contract, parsed."""
    (artifact,) = backend.emit(contract)
    plan: dict[str, Any] = json.loads(artifact.text)
    return plan


def line_of(plan: dict[str, Any], name: str) -> dict[str, Any]:
    """The one line of a plan whose name ends so."""
    (line,) = (line for line in plan["tensors"] if line["tensor"].endswith(name))
    return line


def recounted(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan with its totals as its lines make them."""
    plan["totals"] = totals(plan["tensors"])
    return plan


def findings(contract: Contract, text: str) -> tuple[Diagnostic, ...]:
    """What the pipeline says of a plan's text under a contract."""
    try:
        return pipeline.read_back(contract, backend, {PLAN_PATH: text}).findings
    except Unsupported as refusal:
        return refusal.findings


def plan_findings(contract: Contract, plan: dict[str, Any]) -> tuple[Diagnostic, ...]:
    """What the pipeline says of a plan under a contract."""
    return findings(contract, plan_text(plan))


def decided(contract: Contract, change: Callable[[Entry], Entry]) -> Contract:
    """A contract with other entries."""
    entries = tuple(change(entry) for entry in contract.entries)
    model = replace(contract.model, tensors=tuple(entry.tensor for entry in entries))
    return replace(contract, model=model, entries=entries)
