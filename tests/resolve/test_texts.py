"""The text of a decision is a spec that decides the same; what is told apart is written apart."""

from __future__ import annotations

from itertools import product

import pytest

from precc.formats import Decision
from precc.graph.reading import read_model
from precc.pipeline import decide_policy
from precc.source import SourceFile

OPERANDS = [
    "fp16",
    "fp8",
    "fp8 per_token",
    "fp8 per_channel",
    "weight fp8 per_channel, input fp8 per_token",
    "weight fp8, input fp8 static",
    "fp8_block",
    "fp8_block scales fp32",
    "fp8_block, scales fp32",
    "mxfp8",
    "weight mxfp8",
    "weight mxfp8, input fp8",
    "mxfp4",
    "nvfp4",
    "nvfp4 per_tensor",
    "nvfp4 per_token four_over_six",
    "nvfp4 per_token four_over_six mse max 448",
    "nvfp4 per_token, four_over_six",
    "nvfp4 per_tensor, weight_block 16x16",
    "weight nvfp4",
    "weight nvfp4 four_over_six",
    "int4",
    "weight int4 group 128",
    "group 64, weight int4",
    "int8 group 64",
]
REST = ["", ", backward high_precision", ", backward dequantized", ", train bf16"]
SPECS = [operands + rest for operands, rest in product(OPERANDS, REST)]


def decided(spec: str) -> Decision:
    """What a spec decides for a weight of a dense layer."""
    source = SourceFile("p.prec", f"@dense_mlp: {spec}\n")
    done = decide_policy(source, read_model("qwen3-8b"), ("converter",))
    assert done.binding is not None, (spec, [finding.message for finding in done.findings])
    return done.binding.contract["model.layers.0.mlp.up_proj"].decision


@pytest.mark.parametrize("spec", SPECS)
def test_a_decision_reads_as_the_spec_that_makes_it(spec: str) -> None:
    """Written out and compiled again it is the same decision."""
    decision = decided(spec)
    assert decided(str(decision)) == decision


def test_different_decisions_have_different_texts() -> None:
    """So that a comparison of two policies shows what differs."""
    decisions = {decided(spec) for spec in SPECS}
    assert len({str(decision) for decision in decisions}) == len(decisions)


def test_options_amend_the_operand_wherever_they_stand() -> None:
    """`group 64, weight int4` and `weight int4, group 64` are one spec."""
    assert decided("group 64, weight int4") == decided("weight int4, group 64") == decided("weight int4 group 64")
