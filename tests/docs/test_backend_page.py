"""`docs/adding-a-backend.md` has a whole backend: here its reading is compared with the engine's own code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from generator.fences import fences

from precc.backend import Backend
from precc.contract import Contract
from precc.graph.model import ModelGraph
from precc.graph.reading import read_model
from precc.pipeline import compile_policy
from precc.rules import modules
from precc.source import SourceFile

PAGE = (Path(__file__).resolve().parents[2] / "docs/adding-a-backend.md").read_text(encoding="utf-8")
PACKAGE = "precc_transformers"
SMALL = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 256,
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
POLICY = "targets: transformers\ndefault: fp8_block scales fp32\nlayers[1], layers[-15%:]: bf16\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The page's package, importable."""
    for fence in fences(PAGE):
        if fence.file and fence.language == "python":
            path = tmp_path / fence.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fence.text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    invalidate_caches()
    yield import_module(PACKAGE)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture
def small(tmp_path: Path) -> ModelGraph:
    """A model of twenty layers, so that layer 1 and layers 10 to 19 can be confused."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL), encoding="utf-8")
    return read_model(str(path))


def compiled(backend: Backend, model: ModelGraph) -> Contract:
    """The contract of the policy, compiled for this backend without a finding."""
    done = compile_policy(SourceFile("p.prec", POLICY), model, [backend])
    assert done.binding is not None
    assert not done.has_errors, done.findings
    return done.binding.contract


def converted_by_transformers(config: dict[str, Any]) -> dict[str, bool]:
    """For each linear layer of the small model: whether Transformers makes it FP8 under a configuration."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    fp8 = import_module("transformers.integrations.finegrained_fp8")
    with torch.device("meta"):
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SMALL))
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    settings = transformers.FineGrainedFP8Config(**config)
    fp8.replace_with_fp8_linear(model, settings.modules_to_not_convert, settings)
    return {name: isinstance(model.get_submodule(name), fp8.FP8Linear) for name in linear}


@pytest.mark.parametrize("extra", [[], ["model.layers.1"], ["down_proj"]], ids=["emitted", "prefix", "suffix"])
def test_the_page_reads_a_configuration_as_transformers_does(
    package: ModuleType, small: ModelGraph, extra: list[str]
) -> None:
    """Every linear layer of a real model, under what was emitted and under lists that people write."""
    contract = compiled(package.backend, small)
    (artifact,) = package.backend.emit(contract)
    config = json.loads(artifact.text)
    config["modules_to_not_convert"] += extra
    readings = package.backend.read_back(contract, {artifact.path: json.dumps(config)})
    ours = {
        entry.tensor.module: reading.decision == package.FP8
        for entry, reading in zip(contract.entries, readings, strict=True)
        if entry.tensor.is_gemm
    }
    assert ours == converted_by_transformers(config)
    assert len(set(ours.values())) == 2


def test_the_pages_rule_does_what_its_own_page_says(package: ModuleType) -> None:
    """The bad example is refused, the good one compiles."""
    (rule,) = modules(package.backend.rules)
    for example in fences(rule.__doc__ or ""):
        source = SourceFile("example.prec", example.text)
        done = compile_policy(source, read_model(example.facts["model"]), [package.backend])
        codes = [finding.code for finding in done.findings if finding.is_error]
        assert codes == ([rule.CODE] if "expect" in example.facts else [])


def test_a_file_that_is_none_of_ours_is_an_error(package: ModuleType, small: ModelGraph) -> None:
    """Another method, or no file at all, is never read as if it were block FP8."""
    from precc.backend import Unsupported

    contract = compiled(package.backend, small)
    for artifacts in ({}, {package.PATH: "[]"}, {package.PATH: '{"quant_method": "awq"}'}):
        with pytest.raises(Unsupported, match="cannot be read"):
            package.backend.read_back(contract, artifacts)
