"""The layouts that P507 proposes: no rule of precc or of an engine has anything against them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from precc import rules
from precc.backend import find_backend
from precc.diagnostics import Diagnostic
from precc.front import read_policy
from precc.graph import catalogue, read_model
from precc.pipeline import ASSUMED, Settings, decide_policy
from precc.source import SourceFile

POLICIES = {
    "fp8 blocks": "default: fp8_block\n@mla?: bf16\n",
    "fp8 blocks of experts": "experts.*?: fp8_block scales fp32\n@dense_mlp?: fp8_block scales fp32\n",
    "mxfp8": "default: mxfp8\n@mla?: bf16\n",
    "nvfp4": "experts.*?: nvfp4 per_token, backward high_precision\n@dense_mlp?: mxfp8\n",
    "int4": "@routed_experts?, @dense_mlp?: weight int4 group 128, train bf16\n",
}
MODELS = ("deepseek-v3", "glm-4.5-air", "llama-3.1-8b", "mixtral-8x7b", "qwen2.5-7b", "qwen3-30b-a3b")
TARGETS = ("te", "sglang")
_PROPOSED = re.compile(r"`(train|rollout): ([^`]*)`")


def decided(policy: str, model: str, settings: Settings = ASSUMED) -> list[Diagnostic]:
    """Every finding of the rules, precc's and the engines', under a layout."""
    found = decide_policy(SourceFile("p.prec", POLICIES[policy]), read_model(model), TARGETS, settings)
    assert found.binding is not None
    findings = list(found.findings)
    for target in TARGETS:
        findings += rules.check_backend(find_backend(target).rules, found.binding.contract)
    return findings


def errors(findings: Iterable[Diagnostic]) -> set[tuple[str, str]]:
    """The errors among them."""
    return {(finding.code, finding.message) for finding in findings if finding.is_error}


def proposed(findings: Iterable[Diagnostic]) -> dict[str, dict[str, str]]:
    """What the help of P507 says to write."""
    help = next((str(finding.help) for finding in findings if finding.code == "P507"), "")
    return {side: dict(word.split("=") for word in words.split()) for side, words in _PROPOSED.findall(help)}


CASES = [("fp8 blocks", model) for model in catalogue()] + [(policy, model) for policy in POLICIES for model in MODELS]


@pytest.mark.slow
@pytest.mark.parametrize("policy, model", dict.fromkeys(CASES))
def test_a_proposed_layout_has_no_error_that_the_assumed_one_has_not(policy: str, model: str) -> None:
    """As written into the file, both sides at once."""
    assumed = decided(policy, model)
    sides = proposed(assumed)
    if sides:
        assert sides.keys() == {"train", "rollout"}
        assert errors(decided(policy, model, Settings(sides["train"], sides["rollout"]))) <= errors(assumed)


@pytest.mark.parametrize(
    "model, policy, rollout",
    [
        ("qwen2.5-7b", "mxfp8", {"gpu": "b200", "tp": "4"}),
        ("qwen3-30b-a3b", "nvfp4", {"gpu": "b200", "tp": "8", "ep": "8"}),
        ("mixtral-8x7b", "mxfp8", {"gpu": "b200", "tp": "8", "ep": "8"}),
    ],
)
def test_a_proposal_is_for_the_model(model: str, policy: str, rollout: dict[str, str]) -> None:
    """28 heads are not split over 8 ranks, and a dense model has no experts to deal out."""
    assert proposed(decided(policy, model))["rollout"] == rollout


def test_a_proposal_can_be_written_as_it_stands() -> None:
    """Each line is one of the language."""
    for model in ("qwen2.5-7b", "qwen3-30b-a3b"):
        sides = proposed(decided("mxfp8", model))
        lines = [
            f"{side}: {' '.join(f'{key}={size}' for key, size in words.items())}\n" for side, words in sides.items()
        ]
        _, findings = read_policy(SourceFile("p.prec", POLICIES["mxfp8"] + "".join(lines)))
        assert not [finding.message for finding in findings if finding.is_error]
