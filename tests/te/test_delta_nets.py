"""Gated delta nets beside gated attention: Megatron's own code builds them, and runs what was compiled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from te.engines import Judges
from te.support import compiled, emitted

from precc.graph.reading import read_model
from precc.graph.shrinking import shrink
from precc_te.modules import modules_of

CASES = [
    ("0.16.1", "qwen3-next-80b-a3b", "default: mxfp8, backward high_precision\nlayers[:1]: bf16\n"),
    ("0.19.2", "qwen3-next-80b-a3b", "@routed_experts: nvfp4 per_token\nlayers[-1:]: bf16\n"),
    ("0.19.2", "qwen3.5-27b", "default: mxfp8\nout_proj: bf16\n"),
    ("0.19.2", "qwen3.5-35b-a3b", "@linear_attention: mxfp8\n(@mtp): mxfp8\n"),
]


@pytest.mark.slow
@pytest.mark.parametrize("megatron_core, model, policy", CASES)
def test_megatron_runs_what_was_compiled(
    megatron_core: str, model: str, policy: str, judges: Judges, tmp_path: Path
) -> None:
    """`in_proj` and `out_proj` in the place of `linear_qkv` and `linear_proj`, in the layers that have them."""
    (tmp_path / "config.json").write_text(json.dumps(shrink(read_model(model), 4).config))
    contract = compiled(policy, str(tmp_path))
    judgement = judges(megatron_core)(contract, emitted(contract))
    assert [finding.message for finding in judgement.findings] == []
    assert judgement.agree == judgement.tensors > 0


@pytest.mark.parametrize("kept", ["in_proj_ba", "in_proj_qkvz"])
def test_projections_of_one_gemm_cannot_differ(kept: str) -> None:
    """A server could keep the small ones in BF16; Megatron multiplies all of them at once."""
    contract = compiled(f"default: mxfp8\n{kept}: bf16\n", "qwen3-next-80b-a3b")
    (first, *_) = modules_of(contract).conflicts()
    assert first.code == "P201"
    assert "are one linear layer in Megatron, self_attention.in_proj" in first.message
