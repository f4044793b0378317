"""What a compile costs, counted in calls: the same for each further layer, and a decision once for all its tensors."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from counting import calls

from precc.backend import Backend, find_backend, standard_targets
from precc.graph.reading import read_model
from precc.pipeline import Compilation, compile_policy
from precc.source import SourceFile

ROOT = Path(__file__).parents[2]
FACTS = json.loads((ROOT / "precc/graph/models/deepseek-v3.json").read_text())["config"]


def compiled(policy: str, model: str, backends: list[Backend]) -> Compilation:
    """A ready policy on a model, for every target, read back."""
    text = (ROOT / f"policies/{policy}.prec").read_text(encoding="utf-8")
    done = compile_policy(SourceFile(f"{policy}.prec", text), read_model(model), backends)
    assert not done.has_errors
    return done


@pytest.mark.parametrize("policy", ["nvfp4_rl", "mxfp8_attention_nvfp4_experts"])
def test_a_further_layer_costs_what_the_one_before_costs(policy: str, tmp_path: Path) -> None:
    """Of DeepSeek-V3 with 15, 30 and 60 layers: nothing grows with their square."""
    backends = [find_backend(name) for name in standard_targets()]
    counts = []
    for layers in (15, 30, 60):
        path = tmp_path / str(layers) / "config.json"
        path.parent.mkdir()
        path.write_text(json.dumps({**FACTS, "num_hidden_layers": layers}))
        compiled(policy, str(path), backends)
        counts.append(calls(partial(compiled, policy, str(path), backends)))
    first, second, third = counts
    assert third - second == pytest.approx(2 * (second - first), rel=0.05)


@pytest.mark.parametrize("model", ["glm-5", "qwen3.5-397b-a17b"])
def test_equal_decisions_are_one_object(model: str) -> None:
    """Comparing two is then comparing where they are, for every rule and every target."""
    done = compiled("nvfp4_rl", model, [])
    assert done.binding is not None
    decisions = [entry.decision for entry in done.binding.contract.entries]
    assert len(set(map(id, decisions))) == len(set(decisions)) > 1
