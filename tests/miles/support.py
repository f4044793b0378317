"""Contracts and artifacts that the tests of this target start from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from precc.backend import Unsupported
from precc.contract import Contract
from precc.diagnostics import Diagnostic
from precc.front import read_policy
from precc.graph.reading import read_model
from precc.pipeline import Settings, compile_policy, read_back
from precc.resolve.bind import bind
from precc.source import SourceFile
from precc_miles import backend

NVFP4 = "@routed_experts: nvfp4 per_token\nlayers[-15%:]: bf16\n"
"""What the blog of Miles' authors chooses: routed experts, and the last layers in BF16."""

DEQUANTIZED = "@routed_experts: nvfp4 per_token, backward dequantized\nlayers[0], layers[-1]: bf16\n"
"""The exceptions of Miles' own test of GLM-5.2."""

ADAPTIVE = "@routed_experts: nvfp4 per_token four_over_six mse max 256\n"
MXFP8 = "default: mxfp8\n@mtp?: mxfp8\nlayers[-6:], @mla?, @indexer?, (@mla in @mtp)?, (@indexer in @mtp)?: bf16\n"
BLOCKS = "default: fp8_block scales fp32\n(@mtp)?: fp8_block scales fp32\ntrain: gpu=h200\nrollout: gpu=h200\n"
SERVED = "default: mxfp8, train bf16\nlayers[:2]: bf16\n"

EXPRESSIBLE: tuple[tuple[str, str], ...] = (
    (NVFP4, "qwen3-30b-a3b"),
    (NVFP4, "deepseek-v3"),
    (NVFP4, "deepseek-v3.2"),
    (NVFP4, "glm-4.5-air"),
    (NVFP4, "glm-4.7"),
    (NVFP4, "qwen3-next-80b-a3b"),
    (DEQUANTIZED, "glm-5"),
    (ADAPTIVE, "qwen3-30b-a3b"),
    (MXFP8, "qwen3-30b-a3b"),
    (MXFP8, "deepseek-v3.2"),
    (MXFP8, "glm-4.5-air"),
    (MXFP8, "qwen3-8b"),
    (MXFP8, "llama-3.1-8b"),
    (BLOCKS, "qwen3-30b-a3b"),
    (BLOCKS, "qwen3-8b"),
    (SERVED, "qwen3-30b-a3b"),
    ("default: bf16\n", "deepseek-v3"),
)
"""Policies that Miles can say on all stages, with a model."""


@cache
def compiled(policy: str, model: str, train: str = "") -> Contract:
    """The contract of a policy text, under a layout of words, whatever the rules say of it."""
    read, found = read_policy(SourceFile("p.prec", policy))
    assert not [finding.message for finding in found if finding.is_error]
    settings = dict(word.split("=", 1) for word in train.split())
    return Settings(train=settings).apply(bind(read, read_model(model)), ("miles",)).contract


def emitted(contract: Contract) -> dict[str, str]:
    """The artifacts, path → text."""
    return {artifact.path: artifact.text for artifact in backend.emit(contract)}


def findings(contract: Contract, artifacts: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """What reading artifacts back finds: P501 for what differs, P502 for what cannot be read."""
    try:
        return read_back(contract, backend, artifacts).findings
    except Unsupported as refusal:
        return refusal.findings


def errors(policy: str, model: str) -> list[Diagnostic]:
    """The errors of a whole compile for this target."""
    found = compile_policy(SourceFile("p.prec", policy), read_model(model), [backend]).findings
    return [finding for finding in found if finding.is_error]


def edited(artifacts: Mapping[str, str], path: str, old: str, new: str) -> dict[str, str]:
    """The artifacts with one text replaced, which must be there."""
    assert old in artifacts[path], f"{path} has no {old!r}:\n{artifacts[path]}"
    return {**artifacts, path: artifacts[path].replace(old, new, 1)}
