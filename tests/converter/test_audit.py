"""Audits of headers and JSON files: a right checkpoint is clean, and each fault is the one finding that names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from converter.audits import INDEX, Conversions, Written, replaced
from converter.checkpoints import load_checkpoint, write_shards
from converter.conversions import Case, case, compile_for, expected
from rollout.support import SMALL

from precc_converter import NotConverted
from precc_converter.conversion.state import STATE

POLICIES = ("nvfp4_rl", "mxfp8_e2e", "fp8_block", "int4_w4a16", "mxfp8_attention_nvfp4_experts")

EXPERT = "model.layers.1.mlp.experts.2"
GATE = f"{EXPERT}.gate_proj"
QUERY = "model.layers.1.self_attn.q_proj"
HEAD = "lm_head.weight"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Conversions:
    """The conversions that are audited, and damaged in copies."""
    return Conversions(tmp_path_factory)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_converter_wrote_is_clean(written: Conversions, policy: str) -> None:
    """Every stored tensor is counted, and agrees, also against its source and in what its bytes may be."""
    out = written(policy)
    for options in ({}, {"sample": 10}, {"source": out.case.source}):
        done = out.audit(**options)
        assert done.findings == ()
        assert done.checked == done.agree == len(load_checkpoint(out.folder))


MORE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "an fp8 source with its next-token layer": ("deepseek_v3", "nvfp4_rl", {"fp8": True}),
    "quantization-aware training": ("qwen3_moe", "int4_qat", {}),
    "fp8 channels": (
        "qwen3",
        "targets: sglang, converter\ndefault: weight fp8 per_channel, input fp8 per_token, train bf16\n",
        {},
    ),
    "for no server": ("qwen3", "targets: converter\ndefault: weight fp8, train bf16\n", {}),
    "unquantized": ("llama", "bf16", {}),
}


@pytest.mark.parametrize("name", MORE)
def test_other_formats_and_sources_are_clean_too(tmp_path: Path, name: str) -> None:
    """Whatever the converter reads and writes."""
    model, policy, options = MORE[name]
    made = case(tmp_path, SMALL[model], policy, **options)
    done = Written(made, made.convert(tmp_path / "out")).audit(source=made.source)
    assert done.findings == ()
    assert done.checked == done.agree > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_what_another_tool_wrote_from_the_same_parts_is_clean(
    written: Conversions, tmp_path: Path, policy: str
) -> None:
    """Other shards, no metadata, no digest, exclusions by module instead of by the shortest list, no second file."""
    made = written(policy).case
    weights = expected(made.contract, made.source)
    write_shards(tmp_path, weights, 3)
    config = json.loads((written(policy).folder / "config.json").read_text())
    config["quantization_config"] = _spelled_out(config["quantization_config"], weights)
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = Written(made, tmp_path).audit(source=made.source)
    assert done.findings == ()
    assert done.agree == len(weights)


def _spelled_out(config: dict[str, Any], weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The config with every unquantized module by its name."""
    del config["precc_contract"]
    matrices = (name for name, weight in weights.items() if weight.ndim == 2 and weight.dtype is torch.bfloat16)
    plain = sorted(name.removesuffix(".weight") for name in matrices if name.endswith(".weight"))
    names = [name for name in plain if ".experts." not in name]
    held = {name.partition(".experts.")[0] + ".experts" for name in plain if ".experts." in name}
    inside = [f"re:{name}\\..*" for name in held] if config["quant_method"] == "compressed-tensors" else sorted(held)
    key = "modules_to_not_convert" if "modules_to_not_convert" in config else "ignore"
    return {**config, key: [*names, *inside]}


def test_one_file_is_a_checkpoint(written: Conversions, tmp_path: Path) -> None:
    """By its own path as by its folder's."""
    made = written("nvfp4_rl").case
    out = made.convert(tmp_path / "out")
    for place in (out, out / "model.safetensors"):
        assert Written(made, place).audit().findings == ()


def test_one_value_may_stand_in_a_list(written: Conversions, tmp_path: Path) -> None:
    """Some tools store an outer scale as a list of one, and servers read both."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    name = f"{GATE}.weight_scale_2"
    out.change(name, lambda weights: weights.update({name: weights[name].reshape(1)}))
    assert out.audit(source=out.case.source).findings == ()


Change = Callable[[Written], object]


def _missing(name: str) -> Change:
    return lambda out: out.change(name, replaced(name))


def _other(name: str, tensor: torch.Tensor, *also_removed: str) -> Change:
    return lambda out: out.change(name, replaced(name, tensor, *also_removed))


def _extra(name: str, tensor: torch.Tensor) -> Change:
    return lambda out: out.change(HEAD, replaced(name, tensor))


def _fp8_for(name: str, rows: int, columns: int) -> Change:
    codes = torch.ones(rows, columns).to(torch.float8_e4m3fn)
    scale = torch.full((rows, columns // 32), 127, dtype=torch.uint8)

    def change(weights: dict[str, torch.Tensor]) -> None:
        weights.update({f"{name}.weight": codes, f"{name}.weight_scale_inv": scale})

    return lambda out: out.change(f"{name}.weight", change)


def _unquantized(name: str, rows: int, columns: int, *scales: str) -> Change:
    weight = torch.zeros(rows, columns, dtype=torch.bfloat16)
    return _other(f"{name}.weight", weight, *(f"{name}.{scale}" for scale in scales))


HEADERS: dict[str, tuple[str, Change, str, tuple[str, ...]]] = {
    "a missing weight": ("nvfp4_rl", _missing(HEAD), "P603", ("missing", HEAD)),
    "a missing outer scale": (
        "nvfp4_rl",
        _missing(f"{GATE}.weight_scale_2"),
        "P603",
        ("`weight_scale_2` beside a nvfp4 weight", f"{GATE}.weight_scale_2"),
    ),
    "a missing block scale": ("mxfp8_e2e", _missing(f"{GATE}.weight_scale_inv"), "P603", ("weight_scale_inv", GATE)),
    "a missing shape": ("int4_w4a16", _missing(f"{GATE}.weight_shape"), "P603", (f"{GATE}.weight_shape",)),
    "an extra tensor": ("nvfp4_rl", _extra("stray", torch.ones(2)), "P603", ("has no such", "`stray`")),
    "an input scale": (
        "nvfp4_rl",
        _extra(f"{GATE}.input_scale", torch.ones(())),
        "P603",
        ("scales of inputs", f"{GATE}.input_scale"),
    ),
    "a zero point": (
        "int4_w4a16",
        _extra(f"{GATE}.weight_zero_point", torch.ones(2, 2)),
        "P603",
        (f"{GATE}.weight_zero_point",),
    ),
    "another shape": (
        "nvfp4_rl",
        _other(f"{GATE}.weight", torch.zeros(64, 128, dtype=torch.uint8)),
        "P601",
        (f"{GATE}.weight", "U8 [64, 128]", "U8 [128, 128]"),
    ),
    "another dtype of a scale": (
        "fp8_block",
        _other(f"{GATE}.weight_scale_inv", torch.ones(1, 2, dtype=torch.float64)),
        "P601",
        (f"{GATE}.weight_scale_inv", "F64", "F32"),
    ),
    "fp16 for bf16": ("nvfp4_rl", _other(HEAD, torch.zeros(512, 256).half()), "P601", (HEAD, "F16", "BF16")),
    "bf16 where fp8 is promised": (
        "mxfp8_e2e",
        _unquantized(GATE, 128, 256, "weight_scale_inv"),
        "P601",
        ("bf16 is stored, where the contract promises mxfp8", f"{GATE}.weight"),
    ),
    "bf16 where nvfp4 is promised": (
        "nvfp4_rl",
        _unquantized(f"{EXPERT}.down_proj", 256, 128, "weight_scale", "weight_scale_2"),
        "P601",
        ("bf16 is stored, where the contract promises nvfp4", f"{EXPERT}.down_proj.weight"),
    ),
    "fp8 where bf16 is promised": (
        "nvfp4_rl",
        _fp8_for(QUERY, 256, 256),
        "P601",
        ("mxfp8 is stored, where the contract promises bf16", f"{QUERY}.weight"),
    ),
    "mxfp8 where fp8 blocks are promised": (
        "fp8_block",
        _fp8_for(QUERY, 256, 256),
        "P601",
        ("mxfp8 is stored, where the contract promises fp8_block", f"{QUERY}.weight"),
    ),
    "outer scales of their own": (
        "nvfp4_rl",
        lambda out: out.flip(f"{GATE}.weight_scale_2", 1),
        "P611",
        (f"{EXPERT}.{{gate,up}}_proj.weight_scale_2",),
    ),
    "an outer scale below zero": (
        "nvfp4_rl",
        lambda out: out.flip(f"{GATE}.weight_scale_2", 3, 0x80),
        "P613",
        (f"{GATE}.weight_scale_2", "above zero"),
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_wrong_tensor_is_one_finding(written: Conversions, tmp_path: Path, name: str) -> None:
    """With its name and its file, and nothing else is reported."""
    policy, change, code, said = HEADERS[name]
    out = written(policy).copy(tmp_path / "out")
    change(out)
    done, finding = out.audit(), out.finding()
    assert finding.code == code
    assert done.agree < done.checked or code == "P603"
    for words in said:
        assert words in finding.message
    assert any(shard.name in finding.message for shard in out.shards) or "missing" in finding.message


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1000)


def _forget(index: dict[str, Any]) -> None:
    del index["weight_map"][f"{GATE}.weight"]


FILES: dict[str, tuple[Change, str, str]] = {
    "a missing shard": (lambda out: out.shards[1].unlink(), "P604", "model-00002-of-00006.safetensors is missing"),
    "no index": (lambda out: (out.folder / INDEX).unlink(), "P609", f"holds 6 shards and no {INDEX}"),
    "an index that leaves the folder": (
        lambda out: out.edit(INDEX, lambda index: index["weight_map"].update({HEAD: "../model.safetensors"})),
        "P609",
        "lists `../model.safetensors`: a path that leaves the folder",
    ),
    "a named pipe for a shard": (
        lambda out: (out.shards[2].unlink(), os.mkfifo(out.shards[2].parent / "model-00003-of-00006.safetensors")),
        "P604",
        "model-00003-of-00006.safetensors is a named pipe",
    ),
    "a named pipe for the configuration": (
        lambda out: ((out.folder / "config.json").unlink(), os.mkfifo(out.folder / "config.json")),
        "P604",
        "config.json is a named pipe",
    ),
    "a truncated shard": (lambda out: _cut(out.shards[2]), "P604", "ends beyond the end of the file"),
    "an empty shard": (lambda out: os.truncate(out.shards[2], 0), "P604", "is empty"),
    "a tensor that the index puts elsewhere": (
        lambda out: out.edit(INDEX, lambda index: index["weight_map"].update({HEAD: out.shards[-1].name})),
        "P609",
        "says model-00006-of-00006.safetensors, which does not hold it: `lm_head.weight`, in model-00001",
    ),
    "a tensor that the index lacks": (
        lambda out: out.edit(INDEX, _forget),
        "P609",
        f"does not list what is there: `{GATE}",
    ),
    "another total": (
        lambda out: out.edit(INDEX, lambda index: index["metadata"].update(total_size=7)),
        "P609",
        "total_size is 7",
    ),
    "a broken index": (lambda out: (out.folder / INDEX).write_text("{"), "P604", "not valid JSON"),
    "an index that is none": (lambda out: (out.folder / INDEX).write_text("{}"), "P604", "no `weight_map`"),
    "no configuration": (lambda out: (out.folder / "config.json").unlink(), "P604", "config.json is missing"),
    "a broken configuration": (lambda out: (out.folder / "config.json").write_text("[]"), "P604", "no JSON object"),
    "no weights": (
        lambda out: [path.unlink() for path in (*out.shards, out.folder / INDEX)],
        "P604",
        "has no safetensors files",
    ),
    "an unfinished conversion": (lambda out: (out.folder / STATE).write_text("{}"), "P604", "unfinished"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_folder_is_one_finding(written: Conversions, tmp_path: Path, name: str) -> None:
    """The tensors that are gone with a shard are not reported one by one."""
    change, code, said = FILES[name]
    out = written("nvfp4_rl").copy(tmp_path / "out")
    change(out)
    finding = out.finding()
    assert finding.code == code
    assert said in finding.message


def test_a_missing_shard_is_found_without_an_index(written: Conversions, tmp_path: Path) -> None:
    """By the numbers in the names of the others."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    out.shards[-1].unlink()
    (out.folder / INDEX).unlink()
    found = {finding.code: finding.message for finding in out.audit().findings}
    assert found.keys() == {"P604", "P609"}
    assert "model-00006-of-00006.safetensors is missing" in found["P604"]


def test_a_tensor_in_two_shards_is_named(written: Conversions, tmp_path: Path) -> None:
    """Which of them a server takes is anybody's guess."""
    out = written("nvfp4_rl").copy(tmp_path / "out")
    first, *_, last = out.shards
    name = next(iter(load_names(first)))
    tensor = load_checkpoint(out.folder)[name]
    out.change(next(iter(load_names(last))), lambda weights: weights.update({name: tensor}))
    codes = {finding.code: finding.message for finding in out.audit().findings}
    assert name in codes["P603"]
    assert codes.keys() <= {"P603", "P609"}


def load_names(file: Path) -> list[str]:
    """The tensors of a shard."""
    from precc.graph.headers import locate_tensors

    return list(locate_tensors(file))


OTHER_NAMES: dict[str, tuple[str, str, dict[str, str]]] = {
    "nvfp4 of compressed-tensors": (
        "nvfp4_rl",
        "compressed-tensors",
        {"weight": "weight_packed", "weight_scale": "weight_scale", "weight_scale_2": "weight_global_scale"},
    ),
    "mxfp8 of modelopt": ("mxfp8_e2e", "ModelOpt", {"weight": "weight", "weight_scale_inv": "weight_scale"}),
    "fp8 blocks of compressed-tensors": (
        "fp8_block",
        "compressed-tensors",
        {"weight": "weight", "weight_scale_inv": "weight_scale"},
    ),
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_the_names_of_another_tool_are_one_finding(written: Conversions, tmp_path: Path, name: str) -> None:
    """Every quantized weight of the checkpoint has them, and the page stays one line."""
    policy, writer, words = OTHER_NAMES[name]
    out = written(policy).copy(tmp_path / "out")
    quantized = {
        n.rpartition(".")[0] for n in load_checkpoint(out.folder) if n.endswith(tuple(set(words) - {"weight"}))
    }
    for shard in out.shards:

        def change(weights: dict[str, torch.Tensor]) -> None:
            for stored in list(weights):
                module, _, word = stored.rpartition(".")
                if module in quantized and word in words:
                    weights[f"{module}.{words[word]}"] = weights.pop(stored)

        out.change(load_names(shard)[0], change)
    finding = out.finding()
    assert finding.code == "P614"
    assert f"in the names of {writer}" in finding.message
    assert f"({len(quantized):,} tensors)" in finding.message
    assert len(finding.message) < 500


def test_a_checkpoint_of_another_policy_is_a_page_and_not_a_list(written: Conversions, tmp_path: Path) -> None:
    """One finding for what it was made for, one for each other way in which weights are stored."""
    out = written("mxfp8_e2e")
    done = Written(written("nvfp4_rl").case, out.folder).audit()
    assert done.agree < done.checked
    assert {finding.code for finding in done.findings} == {"P601", "P610"}
    assert len(done.findings) < 8
    digest = out.case.contract.digest[:12]
    assert any(f"written for contract {digest}" in finding.message for finding in done.findings)
    experts = "`model.layers.{0..2}.mlp.experts.{0..3}.{down,gate,up}_proj.weight` (36 tensors)"
    assert any(f"mxfp8 is stored, where the contract promises nvfp4: {experts}" in f.message for f in done.findings)


def test_a_contract_that_is_none_is_refused(written: Conversions, tmp_path: Path) -> None:
    """An edited one above all."""
    made = written("nvfp4_rl").case
    compiled = compile_for(made.source, "nvfp4_rl", tmp_path / "compiled")
    text = (compiled / "contract.json").read_text()
    (compiled / "contract.json").write_text(text.replace("nvfp4", "mxfp8"))
    with pytest.raises(NotConverted, match="P608"):
        Written(Case(made.source, compiled), written("nvfp4_rl").folder).audit()


def test_headers_are_audited_without_torch(written: Conversions) -> None:
    """A login node is enough."""
    out = written("nvfp4_rl")
    code = "import sys; from precc.cli import main; print(main(sys.argv[1:])); print(*sys.modules)"
    command = [sys.executable, "-c", code, "audit", str(out.folder), "--contract", str(out.case.compiled)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *_, status, modules = done.stdout.splitlines()
    assert status == "0"
    assert {"torch", "numpy", "safetensors"} & set(modules.split()) == set()
