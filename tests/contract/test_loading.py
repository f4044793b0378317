"""A contract that was written and read again is as good as the one that was compiled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precc import load_contract
from precc.backend import find_backend, standard_targets
from precc.contract import contract_to_json
from precc.graph.reading import read_model
from precc.pipeline import compile_policy
from precc.source import SourceFile

POLICIES = Path(__file__).parents[2] / "policies"


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3"])
@pytest.mark.parametrize("policy", ["mxfp8_e2e", "mxfp8_attention_nvfp4_experts", "nvfp4_rl", "fp8_block"])
def test_the_artifacts_of_a_read_contract_are_those_of_the_compile(policy: str, model: str, tmp_path: Path) -> None:
    """Byte for byte, though the file folds layers and orders tensors in its own way."""
    text = (POLICIES / f"{policy}.prec").read_text(encoding="utf-8")
    backends = [find_backend(name) for name in standard_targets()]
    done = compile_policy(SourceFile(f"{policy}.prec", text), read_model(model), backends)
    assert done.binding is not None
    contract = done.binding.contract
    (tmp_path / "contract.json").write_text(json.dumps(contract_to_json(contract)), encoding="utf-8")
    read = load_contract(tmp_path / "contract.json")
    for backend, emission in zip(backends, done.emissions, strict=True):
        assert backend.emit(read) == emission.artifacts
