"""What is exported live is what `convert` writes into files."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from converter.checkpoints import load_checkpoint
from converter.conversions import case
from converter.live import in_megatron, stored
from rollout.support import SMALL
from torch import Tensor

from precc.graph.model import ModelGraph
from precc_converter import LiveExporter

MIX = (
    "targets: sglang, converter\n"
    "default: mxfp8\n@routed_experts: nvfp4 per_token\n@mla?, @shared_experts?, layers[0]: bf16\n"
)
CASES: dict[str, tuple[str, str]] = {
    "nvfp4 experts": ("qwen3_moe", "nvfp4_rl"),
    "four over six": ("qwen3_moe", "nvfp4_four_over_six"),
    "a mix": ("qwen3_moe", MIX),
    "int4": ("qwen3_moe", "int4_w4a16"),
    "fp8 blocks": ("qwen3", "fp8_block"),
    "mxfp8 with an MTP layer": ("glm4_moe", "mxfp8_e2e"),
    "bf16": ("llama", "bf16"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_export_is_what_the_converter_writes_into_files(name: str, tmp_path: Path) -> None:
    """The same weights: through `convert` from a folder, and through a session in shuffled buckets."""
    model, policy = CASES[name]
    made = case(tmp_path, SMALL[model], policy)
    written = load_checkpoint(made.convert(tmp_path / "out"))
    found: dict[str, Tensor] = {}
    with LiveExporter(made.compiled).session(step=0) as session:
        for bucket in buckets(as_trained(load_checkpoint(made.source), made.contract.model)):
            found |= {stored_name: tensor.clone() for stored_name, tensor in session.add(bucket)}
    assert stored(found.items()) == stored(written.items())


def as_trained(weights: dict[str, Tensor], graph: ModelGraph) -> dict[str, Tensor]:
    """The weights as Megatron's parameters; as stored if there is an MTP layer: its copies are none here."""
    return weights if graph.mtp_layers else in_megatron(graph, weights)


def buckets(tensors: Mapping[str, Tensor], seed: int = 0) -> list[dict[str, Tensor]]:
    """The tensors in shuffled buckets of seven."""
    order = sorted(tensors)
    random.Random(seed).shuffle(order)
    return [{name: tensors[name] for name in order[at : at + 7]} for at in range(0, len(order), 7)]
