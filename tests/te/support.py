"""Contracts and artifacts that the tests of this target start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from precc import pipeline, rules
from precc.backend import Unsupported
from precc.contract import Contract
from precc.diagnostics import Diagnostic
from precc.graph.reading import read_model
from precc.resolve.bind import bind
from precc.source import SourceFile
from precc_te import backend

TWO_LINES = "kv_b_proj: bf16\nexperts.*: nvfp4 per_token\n"
MXFP8 = "default: mxfp8\nlayers[-15%:]: bf16\nkv_b_proj?: bf16\n"
MIXED = "default: mxfp8\n@routed_experts?: nvfp4 per_tensor, backward native\n"
TWO_BACKWARDS = "@routed_experts?: nvfp4 per_token\n@routed_experts? in layers[24:]: backward dequantized\n"
MTP = "default: mxfp8\n@routed_experts?: nvfp4 per_token, backward dequantized\n(@mtp)?: mxfp8\n"
PRETRAINING = (
    "default: nvfp4 per_tensor, weight_block 16x16, hadamard, stochastic_rounding\n@indexer?, layers[-2:]: bf16\n"
)
ADAPTIVE_BOTH = (
    "default: weight nvfp4 four_over_six mae max 256, input nvfp4 per_token four_over_six mae max 448, "
    "backward high_precision\n"
)
ADAPTIVE = "@routed_experts?, @dense_mlp?: nvfp4 per_token, backward dequantized, four_over_six mse max 448\n"
BLOCKS = "default: fp8_block\n@mla?, @shared_experts?: bf16\n"
TENSORS = "default: fp8 per_tensor, backward high_precision\n"
INNER = "default: mxfp8\nlayers[5]: bf16\nlayers[9]: mxfp8, backward dequantized\no_proj in layers[7]: bf16\n"

POLICIES: dict[str, str] = {
    "two lines": TWO_LINES,
    "mxfp8": MXFP8,
    "mixed": MIXED,
    "two backward modes": TWO_BACKWARDS,
    "mtp under fp4": MTP,
    "pretraining": PRETRAINING,
    "four over six": ADAPTIVE,
    "four over six of both": ADAPTIVE_BOTH,
    "fp8 blocks": BLOCKS,
    "fp8 tensors": TENSORS,
    "single layers": INNER,
    "bf16": "default: bf16\n",
    "served int4": "@routed_experts?, @dense_mlp?: int4, train bf16\n",
}
MODELS = ("qwen3-30b-a3b", "deepseek-v3", "deepseek-v3.2", "deepseek-v2-lite", "glm-4.5", "llama-3.1-8b")


@cache
def compiled(policy: str, model: str, train: str = "") -> Contract:
    """The contract of a policy text under a layout of words (`pp=2 te=2.19`), whatever the rules say of it."""
    read, found = pipeline.read_policy(SourceFile("p.prec", policy))
    assert not [finding.message for finding in found if finding.is_error]
    settings = dict(word.split("=", 1) for word in train.split())
    return pipeline.Settings(train=settings).apply(bind(read, read_model(model)), ("te",)).contract


def emitted(contract: Contract) -> dict[str, str]:
    """What the backend writes, by path."""
    return {artifact.path: artifact.text for artifact in backend.emit(contract)}


def findings(contract: Contract, artifacts: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """What the pipeline says of artifacts under a contract."""
    try:
        return pipeline.read_back(contract, backend, artifacts).findings
    except Unsupported as refusal:
        return refusal.findings


def refusals(contract: Contract) -> Iterator[Diagnostic]:
    """What this engine's own rules refuse."""
    return (finding for finding in rules.check_backend(backend.rules, contract) if finding.is_error)
