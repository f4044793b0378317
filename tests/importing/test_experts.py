"""Routed experts that may be in MXFP4 beside block FP8: what a config.json, its section and the shards say of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from graph.checkpoint_files import header_of, write_file
from importing.support import counts, decisions, imported, messages, model, reading
from rollout import engine as real

from precc.graph.config import describe
from precc.graph.shrinking import complete_config, shrink
from precc.importing.reading import Unimportable

FLASH, PRO = "deepseek-v4-flash", "deepseek-v4-pro"
MXFP4 = "weight mxfp4, input mxfp8, train bf16"
KEY, FIELD = "routed_experts_quant_method", "expert_dtype"
EXPERT, DRAFT, SHARED = "layers.1.ffn.experts.3.w1", "mtp.0.ffn.experts.3.w1", "layers.1.ffn.shared_experts.w1"

SMALL = shrink(model(FLASH), layers=4)
GRAPH = SMALL.graph

POLICY = [
    "default: fp8_block",
    "targets: sglang",
    "@mtp: fp8_block",
    f"@routed_experts, @routed_experts in @mtp: {MXFP4}",
]


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[..., Any]]:
    """The live SGLang."""
    with real.engine() as caller:
        yield caller


def checkpoint(folder: Path, dtype: str | None, section: dict[str, Any] | None = None, **fields: Any) -> Path:
    """A folder with the small model's configuration, and a shard of its experts' weights in some dtype."""
    config = {**SMALL.config, "model_type": "deepseek_v4", **fields}
    config["quantization_config"] = {**config["quantization_config"], "activation_scheme": "dynamic", **(section or {})}
    (folder / "config.json").write_text(json.dumps({key: said for key, said in config.items() if said is not None}))
    if dtype is not None:
        experts = (tensor for tensor in GRAPH.tensors if ".experts." in tensor.module)
        stored = {f"{module}.weight": (dtype, tensor.shape) for tensor in experts for module in tensor.modules()}
        write_file(folder / "model-00001-of-00001.safetensors", *header_of(stored))
    return folder


@pytest.mark.parametrize("name", [FLASH, PRO])
def test_a_release_s_own_configuration_says_it(tmp_path: Path, name: str) -> None:
    """`expert_dtype: fp4` is about routed experts, those of MTP layers too; the rest is in block FP8."""
    config = complete_config(model(name))
    config["quantization_config"] = {**config["quantization_config"], "activation_scheme": "dynamic"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    graph = describe({**config, "quantization_config": None}, name).graph(name)
    done = imported(tmp_path / "config.json", graph)
    assert [line for line in done.text.splitlines() if line and line[0] not in "#p"] == POLICY[:1] + POLICY[2:]
    assert counts(done.reading)[MXFP4] == sum(t.count for t in graph.tensors if ".ffn.experts." in t.module)
    (said,) = messages(done)
    assert said.startswith("P910 no file of a checkpoint says what experts in MXFP4 are multiplied with")


def test_a_section_alone_does_not_say_it(tmp_path: Path) -> None:
    """The sections of DeepSeek's release and of its conversion to FP8 are one and the same."""
    section = complete_config(model(FLASH))["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    done = imported(tmp_path / "config.json", model(FLASH))
    assert MXFP4 not in done.text
    (finding,) = done.findings
    assert finding.code == "P907"
    assert finding.message == (
        "config.json: quantization_config alone does not say whether `layers.{0..42}.ffn.experts.{0..255}.{w1,w2,w3}` "
        "and `mtp.0.ffn.experts.{0..255}.{w1,w2,w3}` are in MXFP4, as in the model's release: `expert_dtype` in "
        "config.json does, or the headers of the checkpoint"
    )


CASES = [
    ({}, {FIELD: "fp4"}, "I8", True, []),
    ({}, {FIELD: "fp4"}, "F8_E4M3", False, ["P905"]),
    ({}, {FIELD: None}, "I8", True, []),
    ({}, {FIELD: None}, "F8_E4M3", False, []),
    ({}, {FIELD: "fp8"}, "U8", True, ["P905"]),
    ({}, {FIELD: "fp4"}, None, True, []),
    ({KEY: "fp8"}, {FIELD: "fp4"}, "I8", False, []),
    ({KEY: "mxfp4"}, {FIELD: None}, "F8_E4M3", True, []),
]


@pytest.mark.slow
@pytest.mark.parametrize("section, fields, dtype, mxfp4, codes", CASES)
def test_the_first_place_that_says_it_counts_to_sglang_too(
    ask: Callable[..., Any],
    tmp_path: Path,
    section: dict[str, Any],
    fields: dict[str, Any],
    dtype: str | None,
    mxfp4: bool,
    codes: list[str],
) -> None:
    """SGLang's own key, then the headers of the folder, then the model's field; what differs is told."""
    folder = checkpoint(tmp_path, dtype, section, **fields)
    assert ask(real.has_fp4_experts, str(folder)) is mxfp4
    done = imported(folder, GRAPH)
    found = decisions(done.reading)
    assert (found[EXPERT], found[DRAFT], found[SHARED]) == (*(2 * [MXFP4 if mxfp4 else "fp8_block"]), "fp8_block")
    assert [finding.code for finding in done.findings] == [*codes, *(["P910"] if mxfp4 else [])]


def test_shards_that_differ_from_the_configuration_are_named(tmp_path: Path) -> None:
    """The policy has what is stored."""
    (said,) = messages(imported(checkpoint(tmp_path, "F8_E4M3"), GRAPH))
    experts = f"{{0..{GRAPH.expert_count - 1}}}"
    assert said == (
        f"P905 config.json says `expert_dtype: fp4`, the shards hold `layers.{{0..3}}.ffn.experts.{experts}."
        f"{{w1,w2,w3}}` and `mtp.0.ffn.experts.{experts}.{{w1,w2,w3}}` as F8_E4M3"
    )


def test_a_shard_that_is_none_is_an_error(tmp_path: Path) -> None:
    """Nothing is imported where the headers would decide and cannot be read."""
    folder = checkpoint(tmp_path, "I8")
    next(folder.glob("*.safetensors")).write_bytes(b"\xff" * 16)
    with pytest.raises(Unimportable, match="is longer than the file"):
        imported(folder, GRAPH)


def test_headers_of_other_models_are_left_alone(tmp_path: Path) -> None:
    """No other class of SGLang looks into them: its configuration is the law."""
    section = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 16)
    assert set(counts(reading(tmp_path, model("qwen3-30b-a3b")))) == {"fp8_block scales fp32", "None"}
