"""Audits of what `config.json` and `hf_quant_config.json` declare."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from converter.audits import Conversions, Written
from converter.conversions import compile_for
from rollout import support
from safetensors.torch import load_file, save_file

from precc_converter.auditing.checkpoint import Checkpoint
from precc_converter.auditing.configuration import configuration_findings

POLICIES = ("nvfp4_rl", "mxfp8_e2e", "fp8_block", "int4_w4a16", "mxfp8_attention_nvfp4_experts")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Conversions:
    """The conversions that are audited, and damaged in copies."""
    return Conversions(tmp_path_factory)


@pytest.mark.parametrize("policy", [name for name in support.POLICIES if name != "unquantized"])
@pytest.mark.parametrize("model", support.SMALL)
def test_a_config_without_a_digest_means_what_its_contract_decides(policy: str, model: str, tmp_path: Path) -> None:
    """What is compiled for SGLang, read by its meaning alone, of every method and family: each module in its format."""
    if (policy, model) in support.REFUSED:
        return
    contract = support.bound(support.POLICIES[policy], support.small_model(model, tmp_path))
    if support.errors(contract):
        return
    artifacts = support.emitted(contract)
    config = json.loads(artifacts[support.CONFIG])
    if config is None:
        return
    del config["precc_contract"]
    shown = {**support.SMALL[model], "quantization_config": config}
    (tmp_path / "config.json").write_text(json.dumps(shown))
    if support.LEGACY in artifacts:
        (tmp_path / "hf_quant_config.json").write_text(artifacts[support.LEGACY].replace("precc_contract", "note"))
    assert not list(configuration_findings(Checkpoint(tmp_path, []), contract, tmp_path / "nowhere"))


Change = Callable[[Written], object]


def _config(**changes: Any) -> Change:
    return lambda out: out.quantization(lambda config: config.update(changes))


def _legacy(change: Callable[[dict[str, Any]], object]) -> Change:
    def apply(shown: dict[str, Any]) -> None:
        del shown["precc_contract"]
        change(shown["quantization"])

    return lambda out: out.edit("hf_quant_config.json", apply)


def _edited(**changes: Any) -> Change:
    """Still in the contract's name."""
    return lambda out: out.edit("config.json", lambda shown: shown["quantization_config"].update(changes))


def _of_layer(algorithm: str) -> Change:
    def change(config: dict[str, Any]) -> None:
        config["quantized_layers"]["model.layers.1.mlp.experts"] = {"quant_algo": algorithm, "group_size": 32}

    return lambda out: out.quantization(change)


def _group(key: str, value: Any) -> Change:
    def change(config: dict[str, Any]) -> None:
        config["config_groups"]["group_0"]["weights"][key] = value

    return lambda out: out.quantization(change)


CHANGES: dict[str, tuple[str, Change, tuple[str, ...]]] = {
    "no quantization config": (
        "mxfp8_e2e",
        lambda out: out.edit("config.json", lambda shown: shown.pop("quantization_config")),
        ("config.json has no quantization_config",),
    ),
    "an excluded module that is quantized": (
        "nvfp4_rl",
        _config(
            ignore=["lm_head", "mlp.gate", "self_attn", "model.layers.3.mlp.experts", "model.layers.1.mlp.experts"]
        ),
        ("config.json declares unquantized, the contract decides nvfp4", "`model.layers.1.mlp.experts.{0..3}"),
    ),
    "a quantized module that is not": (
        "nvfp4_rl",
        _config(ignore=["lm_head", "mlp.gate", "model.layers.3.mlp.experts"]),
        ("config.json declares nvfp4, the contract decides bf16", "`model.layers.{0..3}.self_attn.{k,o,q,v}_proj`"),
    ),
    "a head that is not left out": (
        "nvfp4_rl",
        _config(ignore=["mlp.gate", "self_attn", "model.layers.3.mlp.experts"]),
        ("config.json declares nvfp4, the contract decides bf16", "`lm_head`"),
    ),
    "an edited list": (
        "nvfp4_rl",
        _edited(ignore=["lm_head", "mlp.gate", "self_attn"]),
        ("`ignore` lacks", "model.layers.3.mlp.experts", "though it names this contract"),
    ),
    "an edited word": ("mxfp8_e2e", _edited(fmt="e5m2"), ('`fmt` is "e5m2", not "e4m3"',)),
    "another block": (
        "fp8_block",
        _config(weight_block_size=[1, 32]),
        ("config.json declares mxfp8, the contract decides fp8_block",),
    ),
    "another block of the same format": (
        "fp8_block",
        _config(weight_block_size=[64, 64]),
        ("`weight_block_size` is [64, 64], not [128, 128]",),
    ),
    "another scale": ("fp8_block", _config(scale_fmt=None), ('`scale_fmt` is null, not "ue8m0"',)),
    "static inputs": ("fp8_block", _config(activation_scheme="static"), ('`activation_scheme` is "static"',)),
    "another group": ("int4_w4a16", _group("group_size", 128), ("`weights` is", '"group_size": 128')),
    "eight bits for four": (
        "int4_w4a16",
        _group("num_bits", 8),
        ("config.json declares int8, the contract decides int4",),
    ),
    "a strategy that nobody knows": ("int4_w4a16", _group("strategy", "magic"), ("cannot be compared", "magic")),
    "another algorithm of a layer": (
        "mxfp8_attention_nvfp4_experts",
        _of_layer("MXFP8"),
        ("config.json declares mxfp8, the contract decides nvfp4", "`model.layers.1.mlp.experts.{0..3}"),
    ),
    "an fp8 cache": ("mxfp8_e2e", _config(kv_cache_quant_algo="FP8"), ("declares fp8 for the KV cache",)),
    "a method that nobody knows": ("mxfp8_e2e", _config(quant_method="gguf"), ("its method 'gguf'",)),
    "a list that is none": ("mxfp8_e2e", _config(modules_to_not_convert="lm_head"), ("no list of names",)),
    "no regular expression": ("int4_w4a16", _config(ignore=["re:("]), ("no regular expression",)),
    "another second file": (
        "nvfp4_rl",
        _legacy(lambda shown: shown.update(exclude_modules=["lm_head", "mlp.gate", "model.layers.3.mlp.experts"])),
        ("hf_quant_config.json declares nvfp4, the contract decides bf16", "self_attn"),
    ),
    "another cache in the second file": (
        "nvfp4_rl",
        _legacy(lambda shown: shown.update(kv_cache_quant_algo="FP8")),
        ("hf_quant_config.json declares fp8 for the KV cache",),
    ),
    "another architecture": (
        "nvfp4_rl",
        lambda out: out.edit("config.json", lambda shown: shown.update(architectures=["LlamaForCausalLM"])),
        ("config.json is of a LlamaForCausalLM",),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_declaration_is_one_finding(written: Conversions, tmp_path: Path, name: str) -> None:
    """Which file says what, of which modules, and nothing else is reported."""
    policy, change, said = CHANGES[name]
    out = written(policy).copy(tmp_path / "out")
    change(out)
    finding = out.finding()
    assert finding.code == "P610"
    for words in said:
        assert words in finding.message


def test_a_config_that_stayed_behind_is_found(written: Conversions, tmp_path: Path) -> None:
    """By its digest, and by what it declares."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    compiled = compile_for(out.case.source, "default: bf16\nexperts.*: nvfp4 per_token\n", tmp_path / "compiled")
    stale = json.loads((compiled / support.CONFIG).read_text())
    out.edit("config.json", lambda shown: shown.update(quantization_config=stale))
    digest, *others = out.audit().findings
    assert f"config.json: written for contract {stale['precc_contract'][:12]}" in digest.message
    assert ["declares nvfp4, the contract decides bf16" in other.message for other in others] == [True]
    assert {finding.code for finding in (digest, *others)} == {"P610"}


def test_shards_of_another_contract_are_found(written: Conversions, tmp_path: Path) -> None:
    """Though every tensor in them looks right: only the backward pass was decided otherwise."""
    out = written("nvfp4_rl")
    compiled = compile_for(out.case.source, "nvfp4_rl_dequantized_backward", tmp_path / "compiled")
    again = out.copy(tmp_path / "out")
    for file in ("config.json", "hf_quant_config.json"):
        (again.folder / file).unlink()
    shown = json.loads((out.folder / "config.json").read_text())
    shown["quantization_config"] = json.loads((compiled / support.CONFIG).read_text())
    (again.folder / "config.json").write_text(json.dumps(shown))
    finding = Written(type(out.case)(out.case.source, compiled), again.folder).finding()
    assert finding.code == "P610"
    assert "and 4 more files: written for contract" in finding.message


def test_the_second_file_may_be_the_only_one(written: Conversions, tmp_path: Path) -> None:
    """As ModelOpt has it, which names no contract: servers read it where `config.json` says nothing."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    out.edit("config.json", lambda shown: shown.pop("quantization_config"))
    out.edit("hf_quant_config.json", lambda shown: shown.pop("precc_contract"))
    forget(out)
    assert out.audit().findings == ()


@pytest.mark.parametrize("policy", ["nvfp4_rl", "mxfp8_e2e", "mxfp8_attention_nvfp4_experts"])
def test_the_sources_config_in_the_place_of_the_converted_one_is_found(
    written: Conversions, tmp_path: Path, policy: str
) -> None:
    """Also where the second file still declares what the shards hold."""
    out = written(policy).copy(tmp_path / "out")
    shutil.copy(out.case.source / "config.json", out.folder)
    finding = out.finding()
    assert finding.code == "P610"
    assert "config.json has no quantization_config, though " in finding.message
    assert out.finding(source=out.case.source, sample=1) == finding


OTHER_KEYS: dict[str, tuple[Change, str]] = {
    "another value": (
        lambda out: out.edit("config.json", lambda shown: shown.update(rope_theta=5.0)),
        "`rope_theta` is 5.0, not ",
    ),
    "a key more": (
        lambda out: out.edit("config.json", lambda shown: shown.update(rope_scaling={"factor": 4.0})),
        "`rope_scaling.factor` is 4.0, not absent",
    ),
    "a key less": (
        lambda out: out.edit("config.json", lambda shown: shown.pop("rope_theta")),
        "`rope_theta` is absent, not 10000.0",
    ),
}


@pytest.mark.parametrize("name", OTHER_KEYS)
def test_with_the_source_every_key_of_the_config_is_its(written: Conversions, tmp_path: Path, name: str) -> None:
    """What decides no tensor decides answers all the same; without a source nobody can know."""
    change, said = OTHER_KEYS[name]
    out = with_theta(written("nvfp4_rl"), tmp_path)
    assert out.audit(source=out.case.source, sample=1).findings == ()
    change(out)
    finding = out.finding(source=out.case.source, sample=1)
    assert finding.code == "P610"
    assert finding.message.startswith(f"config.json is not that of the source: {said}")


def test_what_another_tool_adds_is_no_difference(written: Conversions, tmp_path: Path) -> None:
    """Defaults written out, and what it says of itself; a value that both files have is one."""
    out = with_theta(written("nvfp4_rl"), tmp_path)
    forget(out)
    out.edit("config.json", lambda shown: shown.update(use_cache=True, transformers_version="5.0"))
    assert out.audit(source=out.case.source, sample=1).findings == ()
    out.edit("config.json", lambda shown: shown.update(rope_theta=5.0))
    assert "`rope_theta` is 5.0" in out.finding(source=out.case.source, sample=1).message


def forget(out: Written) -> None:
    """The shards as a tool writes them that knows no contract."""
    for file in out.shards:
        save_file(load_file(file), file, metadata={"format": "pt"})


def with_theta(made: Written, folder: Path) -> Written:
    """A copy, and one of its source, with a key in both configurations that decides no tensor."""
    source = shutil.copytree(made.case.source, folder / "source")
    out = Written(type(made.case)(source, made.case.compiled), shutil.copytree(made.folder, folder / "out"))
    for path in (source, out.folder):
        Written(out.case, path).edit("config.json", lambda shown: shown.update(rope_theta=10_000.0))
    return out


def test_a_contract_by_itself_is_enough(written: Conversions, tmp_path: Path) -> None:
    """Without the artifacts beside it the config is read by its meaning."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    shutil.copy(out.case.compiled / "contract.json", tmp_path)
    alone = Written(type(out.case)(out.case.source, tmp_path / "contract.json"), out.folder)
    assert alone.audit().findings == ()
    _config(ignore=["lm_head", "mlp.gate", "model.layers.3.mlp.experts"])(alone)
    assert "self_attn" in alone.finding().message


def test_artifacts_of_another_contract_are_not_believed(written: Conversions, tmp_path: Path) -> None:
    """They are what the checkpoint would be compared with."""
    out = written("mxfp8_e2e")
    compiled = shutil.copytree(out.case.compiled, tmp_path / "compiled")
    (compiled / support.CONFIG).write_text('{"precc_contract": "0"}')
    finding = Written(type(out.case)(out.case.source, compiled), out.folder).finding()
    assert finding.code == "P608"
