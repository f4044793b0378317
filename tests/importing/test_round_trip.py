"""What a compile wrote is imported as it was decided: for SGLang, for the trainer, for Miles, and the contract itself.

Every ready policy and every family is in one pair or another; `pairs` makes all of them where one asks for that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from importing.support import imported, model, written

from precc.backend import find_backend
from precc.contract import Contract, Entry
from precc.contract.serial import contract_to_json
from precc.formats import Decision
from precc.importing.importing import Imported
from precc.importing.reading import Unimportable
from precc.pipeline import compile_policy
from precc.source import SourceFile

READY = Path(__file__).parents[2] / "policies"
LEFT_OPEN = "P910"

SERVED = {
    "deepseek-r1": "mxfp8_attention_nvfp4_experts",
    "deepseek-v2-lite": "int4_w4a16",
    "deepseek-v3.2": "mxfp8_e2e",
    "deepseek-v4-flash": "nvfp4_rl",
    "gemma-3-1b": "mxfp8_high_precision_backward",
    "gemma-3-4b": "fp8_block",
    "gemma-4-26b-a4b": "nvfp4_four_over_six",
    "glm-4.5-air": "nvfp4_rl_dequantized_backward",
    "glm-5": "mxfp8_attention_nvfp4_experts",
    "kimi-k2.5": "int4_qat",
    "llama-4-scout": "int4_w4a16",
    "mimo-v2-flash": "mxfp8_e2e",
    "minimax-m2": "fp8_block",
    "minimax-m3": "mxfp8_attention_nvfp4_experts",
    "mixtral-8x7b": "mxfp8_dequantized_backward",
    "nemotron-3-super-120b-a12b": "mxfp8_attention_nvfp4_experts",
    "qwen2.5-7b": "mxfp8_attention_nvfp4_experts",
    "qwen3-30b-a3b": "nvfp4_rl",
    "qwen3-8b": "bf16",
    "qwen3-next-80b-a3b": "mxfp8_attention_nvfp4_experts",
    "qwen3-vl-30b-a3b": "nvfp4_four_over_six",
    "qwen3.5-27b": "mxfp8_e2e",
    "qwen3.5-35b-a3b": "mxfp8_attention_nvfp4_experts",
}
"""A model of each family that SGLang serves a ready policy for, with one of these."""

TRAINED = {
    "deepseek-v3": "nvfp4_pretraining",
    "glm-4.5-air": "mxfp8_high_precision_backward",
    "moonlight-16b-a3b": "int4_qat",
    "qwen3-30b-a3b": "mxfp8_attention_nvfp4_experts",
    "qwen3-next-80b-a3b": "nvfp4_rl_dequantized_backward",
}
"""The same for the trainer, whose own module has every policy."""

MILES = {"deepseek-v3": "nvfp4_rl", "glm-4.5-air": "mxfp8_e2e", "qwen3-30b-a3b": "nvfp4_four_over_six"}

OTHERS = {
    "gpt-oss-20b-bf16": "@routed_experts: weight mxfp4, train bf16",
    "llama-3.1-8b": "default: weight fp8 per_channel, input fp8 per_token, train bf16",
    "qwen2.5-7b": "default: fp8_block scales fp32\ntrain: gpu=h200\nrollout: gpu=h200 tp=4",
    "qwen3-8b": "o_proj, down_proj: weight fp8 per_tensor, input fp8 per_tensor static, train bf16",
    "glm-4.5-air": "@routed_experts: weight nvfp4, train bf16\nkv_cache: fp8",
    "deepseek-v4-flash": "default: fp8_block\n@mtp: fp8_block\n@routed_experts in layers[:]: nvfp4 per_token",
    "qwen3-30b-a3b": "default: fp8_block scales fp32\n@routed_experts: nvfp4 per_token\ntrain: gpu=h200",
}
"""Formats that SGLang serves and no ready policy has, and another GPU."""


@cache
def compiled(policy: str, name: str, target: str) -> tuple[Contract, Mapping[str, str]]:
    """The contract of a ready policy, or of a text, and a target's files (last component of the path → text)."""
    text = policy if ":" in policy else (READY / f"{policy}.prec").read_text()
    done = compile_policy(SourceFile("policy.prec", text + "\n"), model(name), [find_backend(target)])
    assert done.binding is not None
    assert not done.has_errors, [finding.message for finding in done.findings if finding.is_error]
    files = {Path(artifact.path).name: artifact.text for emission in done.emissions for artifact in emission.artifacts}
    return done.binding.contract, files


def pairs(table: Mapping[str, str]) -> pytest.MarkDecorator:
    """Runs a test for each model of a table with its policy."""
    return pytest.mark.parametrize("name, policy", table.items(), ids=[f"{n}-{p.split()[0]}" for n, p in table.items()])


def again(folder: Path, files: Mapping[str, str], name: str) -> tuple[Imported, Contract]:
    """What a folder with some files is imported as, and the contract of that policy."""
    for file, text in files.items():
        written(folder, file, text)
    found = imported(folder, model(name))
    done = compile_policy(SourceFile("imported.prec", found.text), model(name), [])
    assert done.binding is not None
    return found, done.binding.contract


def side_by_side(one: Contract, other: Contract) -> Iterator[tuple[Entry, Decision]]:
    """Each entry with what the other contract decides for the same tensor, or for some of its experts."""
    there: dict[tuple[object, ...], list[Entry]] = {}
    for entry in other.entries:
        there.setdefault((entry.tensor.path, entry.tensor.parameter), []).append(entry)
    for entry in one.entries:
        for match in there[entry.tensor.path, entry.tensor.parameter]:
            yield entry, match.decision


def codes(found: Imported) -> set[str]:
    """The codes of the findings."""
    return {finding.code for finding in found.findings}


def is_quantized(contract: Contract) -> bool:
    """Whether anything is below 16 bits."""
    return next(contract.quantized(), None) is not None


@pairs(SERVED)
def test_what_is_written_for_sglang_is_imported_as_it_was_decided(name: str, policy: str, tmp_path: Path) -> None:
    """Both operands of every tensor, and the KV cache; that a server's files say nothing of training is told."""
    contract, files = compiled(policy, name, "sglang")
    found, after = again(tmp_path, files, name)
    for entry, decision in side_by_side(contract, after):
        assert (decision.weight, decision.input) == (entry.decision.weight, entry.decision.input), entry.tensor.name
    assert after.kv_cache == contract.kv_cache
    assert codes(found) == ({LEFT_OPEN} if is_quantized(contract) else set())


CONVERTED = (
    *("deepseek-r1", "deepseek-v3.2", "deepseek-v4-flash", "gemma-4-26b-a4b", "glm-4.5-air", "kimi-k2.5", "minimax-m2"),
    *("nemotron-3-super-120b-a12b", "qwen3-next-80b-a3b", "qwen3.5-27b"),
)
"""Models with a draft model, with names of their own, or with a method that has no other test here."""


@pairs({name: SERVED[name] for name in CONVERTED})
def test_a_converted_checkpoint_is_imported_as_it_is_stored(name: str, policy: str, tmp_path: Path) -> None:
    """`config.json` alone: the weights of every tensor, and their inputs unless the environment says how."""
    contract, files = compiled(policy, name, "sglang")
    config = {"architectures": [contract.model.architecture], "quantization_config": json.loads(files[CONFIG])}
    found, after = again(tmp_path, {"config.json": json.dumps(config)}, name)
    is_told = any("how inputs in NVFP4 are scaled" in finding.message for finding in found.findings)
    for entry, decision in side_by_side(contract, after):
        assert stored(decision) == stored(entry.decision), entry.tensor.name
        if entry.decision.input is not None and entry.decision.input.format != "nvfp4":
            assert decision.input == entry.decision.input, entry.tensor.name
    assert is_told == any("nvfp4" in (e.decision.input or e.decision.weight).format for e in contract.entries)
    assert codes(found) == {LEFT_OPEN}


CONFIG, LEGACY = "quantization_config.json", "hf_quant_config.json"


def stored(decision: Decision) -> str:
    """The weights in a checkpoint; four-over-six is how they were chosen, and no config says it."""
    return str(decision.weight).partition(" four_over_six")[0]


@pairs({"deepseek-r1": "mxfp8_attention_nvfp4_experts", "qwen3-next-80b-a3b": "mxfp8_attention_nvfp4_experts"})
def test_the_legacy_file_alone_says_the_same(name: str, policy: str, tmp_path: Path) -> None:
    """`hf_quant_config.json`, whose map has the names of SGLang's modules."""
    contract, files = compiled(policy, name, "sglang")
    _, after = again(tmp_path, {LEGACY: files[LEGACY]}, name)
    assert all(stored(decision) == stored(entry.decision) for entry, decision in side_by_side(contract, after))


@pairs(OTHERS)
def test_formats_of_no_ready_policy_come_back_too(name: str, policy: str, tmp_path: Path) -> None:
    """Weight-only and static ones, FP8 by channel, and the mix of DeepSeek-V4."""
    contract, files = compiled(policy, name, "sglang")
    found, after = again(tmp_path, files, name)
    for entry, decision in side_by_side(contract, after):
        assert (decision.weight, decision.input) == (entry.decision.weight, entry.decision.input), entry.tensor.name
    assert (after.kv_cache, after.rollout) == (contract.kv_cache, contract.rollout)
    assert codes(found) == {LEFT_OPEN}


@pairs(TRAINED)
def test_what_is_written_for_the_trainer_is_trained_the_same(name: str, policy: str, tmp_path: Path) -> None:
    """Backward passes included; what only a server runs below 16 bits is not in it, and that is told."""
    contract, files = compiled(policy, name, "te")
    found, after = again(tmp_path, files, name)
    for entry, decision in side_by_side(contract, after):
        if entry.decision.trains_quantized:
            assert decision == entry.decision, entry.tensor.name
        else:
            assert not decision.is_quantized, entry.tensor.name
    assert codes(found) == {LEFT_OPEN}


@pairs(MILES)
def test_what_is_written_for_miles_is_imported_as_it_was_decided(name: str, policy: str, tmp_path: Path) -> None:
    """Its files of arguments are one command each, wherever their lines break."""
    contract, files = compiled(policy, name, "miles")
    found, after = again(tmp_path, files, name)
    assert all(decision == entry.decision for entry, decision in side_by_side(contract, after))
    assert codes(found) <= {"P905"}
    assert all("the server" in finding.message for finding in found.findings), "its draft model, which P702 tells too"


@pairs({"deepseek-v3": "nvfp4_four_over_six", "qwen3-30b-a3b": "int4_qat", "nemotron-3-nano-30b-a3b": "mxfp8_e2e"})
def test_a_contract_is_imported_decision_by_decision(name: str, policy: str, tmp_path: Path) -> None:
    """With its backward passes and what trains in BF16, so that the digest is the same."""
    contract, _ = compiled(policy, name, "converter")
    found, after = again(tmp_path, {"contract.json": json.dumps(contract_to_json(contract))}, name)
    assert after.digest == contract.digest
    assert not found.findings


@pairs({"gemma-3-1b": "mxfp8_e2e", "qwen3-30b-a3b": "int4_w4a16"})
def test_a_conversion_says_what_is_stored(name: str, policy: str, tmp_path: Path) -> None:
    """The plan, and the `config.json` of a checkpoint that is for no server."""
    contract, files = compiled(policy, name, "converter")
    lines = json.loads(files["plan.json"])["tensors"]
    quantizers = {line["tensor"]: line["quantizer"] for line in lines if "quantizer" in line}
    section = {"quant_method": "precc", "tensors": quantizers, "precc_contract": contract.digest}
    config = {"architectures": [contract.model.architecture], "quantization_config": section}
    for file, text in {"plan.json": files["plan.json"], "config.json": json.dumps(config)}.items():
        (tmp_path / file).mkdir()
        found, after = again(tmp_path / file, {file: text}, name)
        assert all(decision.weight == entry.decision.weight for entry, decision in side_by_side(contract, after))
        assert codes(found) == {LEFT_OPEN}


# --- folders that are not what a compile left ---------------------------------------------------------

EDITED: dict[str, tuple[Any, str]] = {
    "of two contracts": (
        lambda f: {**f, "env.json": f["env.json"].replace('"digest": "', '"digest": "0')},
        "two contr",
    ),
    "with lists that differ": (
        lambda f: {**f, LEGACY: f[LEGACY].replace('"lm_head"', '"head"')},
        "differ about `ignore`",
    ),
    "without a config": (lambda f: {"server.yaml": f["server.yaml"]}, "is not here"),
    "with an unknown word": (lambda f: {CONFIG: f[CONFIG].replace('"NVFP4"', '"NVFP3"')}, "does not read"),
    "with a key that may decide": (
        lambda f: {CONFIG: f[CONFIG].replace("{", '{"linear_fp8_config": {}, ', 1)},
        "linear_fp8",
    ),
    "with no mapping of arguments": (lambda f: {**f, "server.yaml": "- dtype\n"}, "no mapping"),
    "with a script that does more": (lambda f: {CONFIG: f[CONFIG], "env.sh": "rm -r /\n"}, "neither `export"),
}


@pytest.mark.parametrize("how", EDITED)
def test_an_edited_folder_is_one_error(how: str, tmp_path: Path) -> None:
    """It says what is wrong, and in which file."""
    edit, words = EDITED[how]
    _, files = compiled("nvfp4_rl", "qwen3-30b-a3b", "sglang")
    with pytest.raises(Unimportable) as refused:
        again(tmp_path, edit(dict(files)), "qwen3-30b-a3b")
    (finding,) = refused.value.findings
    assert finding.code in ("P901", "P902")
    assert words in finding.message


def test_a_contract_for_another_model_is_refused(tmp_path: Path) -> None:
    """Its tensors are not those that the policy would be for."""
    contract, _ = compiled("bf16", "qwen3-8b", "te")
    with pytest.raises(Unimportable, match="whose tensors are not those of qwen3-30b-a3b"):
        again(tmp_path, {"contract.json": json.dumps(contract_to_json(contract))}, "qwen3-30b-a3b")
