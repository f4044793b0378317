"""Decisions that no quantizer fits, and stored parts of another decision: what was given, and what there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from quant.specs import SPECS
from quant.weights import normal, raw

from precc.api import compile_source
from precc.formats import FORMATS, FourOverSix, Quantization
from precc.quant import FakeQuantized, amax, dequantize, fake_quantize, fast, quantize
from precc.quant.dequantizing import DEQUANTIZERS
from precc.quant.reference import QUANTIZERS
from precc.quant.specs import choices, require_spec
from precc.source import SourceFile

WRONG: dict[str, tuple[Quantization, str]] = {
    "half a block": (Quantization("mxfp8", (1, 16), "e8m0"), "mxfp8 has blocks of 1×32, and this decision 1×16"),
    "two blocks": (Quantization("mxfp8", (1, 64), "e8m0"), "mxfp8 has blocks of 1×32, and this decision 1×64"),
    "FP32 scales of INT4": (
        Quantization("int4", (1, 32), "fp32"), "int4 has block scales in bf16, and this decision fp32",
    ),
    "another format's block": (
        Quantization("nvfp4", (1, 32), "e4m3", "per_tensor"), "nvfp4 has blocks of 1×16, 16×16, and this decision 1×32",
    ),
    "another format's scale": (
        Quantization("nvfp4", (1, 16), "e8m0", "per_tensor"), "nvfp4 has block scales in e4m3, and this decision e8m0",
    ),
    "a group that is none": (
        Quantization("int4", (2, 32), "bf16"), "int4 has blocks of 1×32, 1×64, 1×128, and this decision 2×32",
    ),
    "no scope": (
        Quantization("fp8"), "fp8 has outer scales per_tensor, per_channel, per_token, and this decision none",
    ),
    "a scope too many": (
        Quantization("mxfp8", (1, 32), "e8m0", "per_tensor"), "mxfp8 has no outer scales, and this decision per_tensor",
    ),
    "a block too many": (
        Quantization("fp8", (1, 32), None, "per_tensor"), "fp8 has no blocks, and this decision 1×32",
    ),
    "FP8 blocks of bytes": (
        Quantization("fp8_block", (128, 128), "e8m0"), "block scales in pow2, fp32, and this decision e8m0",
    ),
    "FP8 blocks of 64": (
        Quantization("fp8_block", (64, 64), "pow2"), "fp8_block has blocks of 128×128, 1×128, and this decision 64×64",
    ),
    "four over six of FP8": (
        Quantization("mxfp8", (1, 32), "e8m0", None, FourOverSix()), "mxfp8 has no four-over-six, and this decision",
    ),
    "a row's scale above blocks of 16 rows": (
        Quantization("nvfp4", (16, 16), "e4m3", "per_token"), "above blocks of 16×16, and this decision per_token",
    ),
}  # fmt: skip


def _dequantized(spec: Quantization) -> torch.Tensor:
    name = next(name for name, each in SPECS.items() if each.format == spec.format)
    return dequantize(quantize(normal(128, 256), SPECS[name]), spec)


CALLS: dict[str, Callable[[Quantization], Any]] = {
    "quantize": lambda spec: quantize(normal(128, 256), spec),
    "amax": lambda spec: amax(normal(128, 256), spec),
    "fake_quantize": lambda spec: fake_quantize(normal(128, 256), spec),
    "FakeQuantized": FakeQuantized,
    "dequantize": _dequantized,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", WRONG)
def test_a_decision_that_its_format_has_not_is_refused_everywhere(name: str, call: str) -> None:
    """Before a byte is made, in one sentence: the format, what it has, what was given."""
    spec, said = WRONG[name]
    with pytest.raises(ValueError, match=said):
        CALLS[call](spec)


@pytest.mark.parametrize("installed", [True, False])
def test_both_paths_are_behind_the_same_refusal(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numba and without: neither chooses another block than was said."""
    monkeypatch.setattr(fast, "is_installed", lambda: installed)
    for spec, said in WRONG.values():
        with pytest.raises(ValueError, match=said):
            quantize(normal(128, 256), spec)


def test_every_decision_of_a_policy_is_accepted() -> None:
    """What the language can say of each format, weights and inputs."""
    lines = {
        "mxfp8", "fp8_block", "fp8_block scales fp32", "fp8 per_tensor", "weight fp8 per_channel, input fp8 per_token",
        "nvfp4 per_token", "nvfp4 per_tensor", "nvfp4 per_tensor, weight_block 16x16",
        "nvfp4 per_token, four_over_six mse max 448", "int4 group 32", "int4 group 64", "int4 group 128",
        "int8 group 32", "int8 group 64", "int8 group 128",
    }  # fmt: skip
    seen = set()
    for line in sorted(lines):
        source = SourceFile("p.prec", f"targets: converter\nexperts.*: {line}\n")
        decision = compile_source(source, "qwen3-30b-a3b").find("model.layers.0.mlp.experts.0.up_proj.weight").decision
        for operand in (decision.weight, decision.input):
            if operand is not None and operand.is_quantized:
                require_spec(operand, tuple(QUANTIZERS))
                seen.add(operand.format)
    assert seen == set(QUANTIZERS)


def test_the_choices_are_those_of_the_formats_table() -> None:
    """Each format with a quantizer or a dequantizer, with the blocks and the scale of its own entry."""
    for name in DEQUANTIZERS:
        assert FORMATS[name].weight_block in choices(name).blocks
        assert FORMATS[name].block_scale in choices(name).scales


APART: dict[str, tuple[str, str, str]] = {
    "a larger group": ("int4_g32", "int4_g128", r"`int4 group 128` has block scales of \[128, 2\] for a weight of \["),
    "a smaller group": ("int4_g128", "int4_g32", r"has block scales of \[128, 8\] .*; these are \[128, 2\]"),
    "tiles as blocks": ("fp8_tiles_pow2", "fp8_block_pow2", r"has block scales of \[1, 2\] .*; these are \[128, 2\]"),
    "a channel's scale as a tensor's": ("fp8_channel", "fp8_tensor", r"outer scales of \[\] .*; these are \[128, 1\]"),
    "a tensor's scale as a channel's": ("fp8_tensor", "fp8_channel", r"outer scales of \[128, 1\] .*; these are \[\]"),
    "a token's scale as a tensor's": ("nvfp4_per_token", "nvfp4_per_tensor", r"has outer scales of \[\] .*; these are"),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_parts_of_another_decision_are_refused(name: str) -> None:
    """Never numbers of the wrong scale."""
    made, asked, said = APART[name]
    with pytest.raises(ValueError, match=said):
        dequantize(quantize(normal(128, 256), SPECS[made]), SPECS[asked])


@pytest.mark.parametrize("name", SPECS)
def test_parts_of_stacked_experts_and_edges_are_accepted(name: str) -> None:
    """Scales of partial blocks at an edge, and one outer scale an expert."""
    weight = normal(2, 144, 160) if SPECS[name].format == "fp8_block" else normal(2, 144, 256)
    assert dequantize(quantize(weight, SPECS[name]), SPECS[name]).shape == weight.shape


def test_integers_of_other_tools_have_groups_of_any_size() -> None:
    """A whole row, as checkpoints with one scale a channel have; only the decisions of a policy are written."""
    weight = normal(16, 96)
    scale = (weight.abs().amax(-1, keepdim=True) / 127).bfloat16()
    codes = (weight / scale).round().clamp(-127, 127).to(torch.int8)
    row = Quantization("int8", (1, 96), "bf16")
    found = dequantize({"codes": codes, "block_scale": scale}, row)
    assert torch.equal(found, codes.float() * scale.float())
    with pytest.raises(ValueError, match="int8 has blocks of 1×32, 1×64, 1×128, and this decision 1×96"):
        quantize(weight, row)


def test_e8m0_scales_are_bytes_of_either_dtype() -> None:
    """`float8_e8m0fnu` as other writers have it: the same numbers."""
    parts, spec = quantize(normal(16, 64), SPECS["mxfp8"]), SPECS["mxfp8"]
    typed = {**parts, "block_scale": parts["block_scale"].view(torch.float8_e8m0fnu)}
    assert raw(dequantize(typed, spec)) == raw(dequantize(parts, spec))
