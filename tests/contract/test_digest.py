"""The digest is over what changes numbers and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from precc.contract import Contract, contract_from_json, contract_to_json, load_contract
from precc.contract.serial import ContractError
from precc.graph.reading import read_model
from precc.pipeline import Settings, compile_policy
from precc.source import SourceFile

BASE = "default: mxfp8\n@routed_experts: nvfp4 per_token\nlayers[-15%:]: bf16\n@mla?: bf16\n"


def compiled(text: str, model: str = "qwen3-30b-a3b", settings: Settings | None = None) -> Contract:
    """The contract of a policy text."""
    done = compile_policy(SourceFile("p.prec", text), read_model(model), [], settings or Settings())
    assert done.binding is not None, done.findings
    return done.binding.contract


@pytest.mark.parametrize(
    "other",
    [
        '# a comment\npolicy "another"\n' + BASE,
        BASE.replace("@mla?: bf16\n", "") + "@mla?, @shared_experts?: bf16\n",
        "let low = nvfp4 per_token\n" + BASE.replace("nvfp4 per_token", "low"),
        BASE.replace("@routed_experts", "experts.*"),
        BASE.replace("layers[-15%:]", "layers[40:]"),
        BASE + "train: ep=4\nrollout: tp=4 ep=4\n",
        BASE.replace("per_token", "per_token, backward high_precision"),
        BASE + "experts.7: nvfp4 per_token\nlayers[-15%:]: bf16\n",
    ],
    ids=["comment and name", "another equal rule", "let", "path for role", "slice", "layout", "default said", "split"],
)
def test_a_policy_that_decides_the_same_has_the_same_digest(other: str) -> None:
    """Comments, names, spelling of rules and layouts are no part of it."""
    assert compiled(other).digest == compiled(BASE).digest


@pytest.mark.parametrize(
    "other",
    [
        BASE + "q_proj in layers[0]: bf16\n",
        BASE + "experts.127.down_proj in layers[39]: bf16\n",
        BASE + "@routed_experts in layers[0]: backward dequantized\n",
        BASE + "kv_cache: fp8\n",
    ],
    ids=["one tensor", "one expert", "one backward mode", "KV cache"],
)
def test_a_policy_that_decides_one_tensor_otherwise_has_another_digest(other: str) -> None:
    """One decision is enough."""
    assert compiled(other).digest != compiled(BASE).digest


def test_equal_rules_in_another_order_have_the_same_digest() -> None:
    """Order counts only where rules meet."""
    lines = ["q_proj: mxfp8\n", "k_proj: mxfp8\n", "v_proj: mxfp8\n"]
    assert compiled("".join(lines)).digest == compiled("".join(reversed(lines))).digest


@pytest.mark.parametrize("spelling", ["Qwen3-30B-A3B", "QWEN3-30b-a3b", "Qwen/Qwen3-30B-A3B"])
def test_the_spelling_of_the_model_does_not_count(spelling: str) -> None:
    """A catalogue name in any case, or the name of its repository."""
    assert compiled(BASE, spelling).digest == compiled(BASE).digest


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3.2", "mixtral-8x7b", "qwen3-4b"])
def test_a_contract_survives_its_file(tmp_path: Path, model: str) -> None:
    """What is read back decides the same for every tensor and emits from the same facts."""
    contract = compiled(BASE + "experts.3?: bf16\n@mtp?: bf16\n", model)
    path = tmp_path / "contract.json"
    path.write_text(json.dumps(contract_to_json(contract)), encoding="utf-8")
    read = load_contract(path)
    assert read.digest == contract.digest
    for entry in contract.entries:
        found = read[next(entry.tensor.modules()) + (f".{entry.tensor.parameter}" if entry.tensor.parameter else "")]
        assert replace(found.tensor, experts=None) == replace(entry.tensor, experts=None)
        assert (found.decision, found.cause) == (entry.decision, entry.cause)
    assert sum(e.tensor.count for e in read.entries) == sum(e.tensor.count for e in contract.entries)
    assert (read.kv_cache, read.train, read.rollout, read.model.config) == (
        contract.kv_cache,
        contract.train,
        contract.rollout,
        contract.model.config,
    )


def test_an_edited_contract_is_refused() -> None:
    """The digest in the file is checked against the content."""
    shown = contract_to_json(compiled(BASE))
    shown["kv_cache"] = "fp8"
    with pytest.raises(ContractError, match="edited after it was compiled"):
        contract_from_json(shown)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1}', "\x00"])
def test_what_is_no_contract_is_refused(tmp_path: Path, text: str) -> None:
    """One error, never a traceback of another kind."""
    (tmp_path / "contract.json").write_text(text, encoding="utf-8")
    with pytest.raises(ContractError):
        load_contract(tmp_path)


def test_names_are_ranges_in_the_file() -> None:
    """Layers and experts that agree are one line."""
    names = [
        line["name"] for line in contract_to_json(compiled("experts.*: nvfp4 per_token", "deepseek-v3"))["tensors"]
    ]
    assert "model.layers.{3..60}.mlp.experts.{0..255}.gate_proj.weight" in names
    assert len(names) < 80


def test_a_tensor_is_found_by_its_name_with_or_without_weight() -> None:
    """The unit is the tensor."""
    contract = compiled(BASE)
    assert (
        contract["model.layers.3.mlp.experts.127.up_proj"] is contract["model.layers.3.mlp.experts.127.up_proj.weight"]
    )
    assert contract.find("model.layers.3.mlp.experts.128.up_proj") is None
    assert contract.find("model.layers.48.self_attn.q_proj") is None
    with pytest.raises(KeyError):
        contract["nothing"]
