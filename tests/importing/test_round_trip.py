"""A compile's `quantization_config` is a checkpoint's: imported, it stores every tensor as the policy decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from importing.support import imported, model, written

from precc.formats import Decision
from precc.graph.model import Tensor
from precc.pipeline import compile_policy
from precc.source import SourceFile
from precc_sglang import backend

POLICIES = sorted((Path(__file__).parents[2] / "policies").glob("*.prec"))
CONFIG = "sglang/quantization_config.json"
NOT_SERVED = {"nvfp4_pretraining"}
"""A ready policy for the trainer alone."""

SERVERS_NAMES = {"mxfp8_attention_nvfp4_experts"}
"""Its map names fused modules (`qkv_proj`) as the server has them; a checkpoint's own has the members."""


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "moonlight-16b-a3b"])
@pytest.mark.parametrize("policy", [p for p in POLICIES if p.stem not in SERVERS_NAMES], ids=lambda path: path.stem)
def test_the_compiled_config_stores_what_was_decided(policy: Path, name: str, tmp_path: Path) -> None:
    """Weights tensor by tensor: scopes of inputs stand in the environment, and backward passes nowhere in it."""
    graph = model(name)
    done = compile_policy(SourceFile(str(policy), policy.read_text()), graph, [backend])
    assert done.binding is not None
    entries = done.binding.contract.entries
    texts = {artifact.path: artifact.text for emission in done.emissions for artifact in emission.artifacts}
    config = json.loads(texts.get(CONFIG, "null"))
    if config is None:
        assert policy.stem in NOT_SERVED or not any(entry.decision.is_quantized for entry in entries)
        return
    content = {"architectures": [graph.architecture], "quantization_config": config}
    found = imported(written(tmp_path, "config.json", content), graph)
    again = compile_policy(SourceFile("imported.prec", found.text), graph, []).binding
    assert again is not None
    after = {key(entry.tensor): stored(entry.decision) for entry in again.contract.entries}
    for entry in entries:
        assert after[key(entry.tensor)] == stored(entry.decision), entry.tensor.name


def key(tensor: Tensor) -> tuple[str, str]:
    """A tensor's name, which holds its experts."""
    return tensor.module, tensor.parameter


def stored(decision: Decision) -> str:
    """The weights in a checkpoint; four-over-six is how they were chosen, and no config says it."""
    return str(decision.weight).partition(" four_over_six")[0]
