"""Checkpoints by their headers: what is stored, and what is told when it is not what it should be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graph.checkpoint_files import (
    Entry,
    entries,
    header_of,
    small,
    write_bytes,
    write_checkpoint,
    write_file,
)
from graph.expansion import facts

from precc.graph import ModelError, ModelGraph, read_model
from precc.graph.config import describe

FAMILIES = [
    *("llama-3.1-8b", "qwen2.5-7b", "qwen3-0.6b", "qwen3-4b", "qwen3-30b-a3b", "qwen3-30b-a3b-fp8"),
    *("mixtral-8x7b", "deepseek-v2-lite", "deepseek-v3", "deepseek-v3.2", "moonlight-16b-a3b", "glm-4.5-air"),
]
KV_B = "model.layers.1.self_attn.kv_b_proj.weight"
KEY = "model.layers.1.self_attn.k_proj.weight"
EXPERT_3 = "model.layers.1.mlp.experts.3.up_proj.weight"


def model(name: str) -> tuple[dict[str, Any], ModelGraph]:
    """A small model of that family: its configuration, and the graph of a regular checkpoint."""
    config, stored = facts(name)
    return small(config), describe(small(config), name, stored).graph(name)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_regular_checkpoint_gives_the_graph_of_its_config(tmp_path: Path, name: str) -> None:
    """The same tensors in the same order, stored dtypes included, and the same facts."""
    config, graph = model(name)
    folder = write_checkpoint(tmp_path / name, config, entries(graph))
    assert read_model(str(folder)) == graph


def test_a_single_file_is_a_checkpoint_with_the_config_beside_it(tmp_path: Path) -> None:
    """The graph is named after the file."""
    config, graph = model("qwen3-4b")
    folder = write_checkpoint(tmp_path / "folder", config, entries(graph), shards=1)
    found = read_model(str(folder / "model-00001-of-00001.safetensors"))
    assert found == replace(graph, name="model-00001-of-00001")


def changed(folder: Path, name: str, change: Callable[[dict[str, Entry]], object]) -> ModelGraph:
    """The graph of a small checkpoint after something was done to its tensors."""
    config, graph = model(name)
    tensors = entries(graph)
    change(tensors)
    return read_model(str(write_checkpoint(folder / name, config, tensors)))


def test_a_checkpoint_dequantized_to_bf16_is_bf16(tmp_path: Path) -> None:
    """The headers are the truth, even if the configuration still says FP8."""

    def dequantize(tensors: dict[str, Entry]) -> None:
        for name in [name for name in tensors if name.endswith("_scale_inv")]:
            del tensors[name]
            weight = name.removesuffix("_scale_inv")
            tensors[weight] = "BF16", tensors[weight][1]

    graph = changed(tmp_path, "deepseek-v3", dequantize)
    assert {t.dtype for t in graph.tensors} == {"bf16", "fp32"}
    assert graph.config["quantization"] is None


def test_experts_of_different_dtypes_are_different_ranges(tmp_path: Path) -> None:
    """One expert in FP32 splits its range in three, in order."""
    graph = changed(tmp_path, "qwen3-30b-a3b", lambda tensors: tensors.update({EXPERT_3: ("F32", (192, 256))}))
    parts = [t for t in graph.tensors if t.layer == 1 and t.path[-1] == "up_proj"]
    assert [(t.experts, t.dtype) for t in parts] == [
        (range(3), "bf16"),
        (range(3, 4), "fp32"),
        (range(4, 6), "bf16"),
    ]


def test_a_head_that_is_tied_may_or_may_not_be_stored(tmp_path: Path) -> None:
    """What the configuration does not say, the headers do."""
    config, graph = model("qwen3-0.6b")
    tensors = entries(graph)
    stored = read_model(str(write_checkpoint(tmp_path / "with", config, tensors)))
    del tensors["lm_head.weight"]
    absent = read_model(str(write_checkpoint(tmp_path / "without", config, tensors)))
    assert len(stored.tensors) == len(absent.tensors) + 1
    assert (stored.config["lm_head_stored"], absent.config["lm_head_stored"]) == (True, False)


def test_an_mtp_layer_may_be_left_out_as_a_whole(tmp_path: Path) -> None:
    """Trainers that do not train it do not write it; part of one is an error."""

    def drop(tensors: dict[str, Entry]) -> None:
        for name in [name for name in tensors if name.startswith("model.layers.3.")]:
            del tensors[name]

    graph = changed(tmp_path, "glm-4.5-air", drop)
    assert (graph.mtp_layers, graph.config["num_mtp_layers"]) == (0, 0)
    with pytest.raises(ModelError, match=r"`model\.layers\.3\.eh_proj\.weight` is missing"):
        changed(tmp_path, "glm-4.5-air", lambda tensors: tensors.pop("model.layers.3.eh_proj.weight"))


def test_the_copies_in_an_mtp_layer_may_be_left_out(tmp_path: Path) -> None:
    """Its embedding and head repeat the model's own."""

    def drop(tensors: dict[str, Entry]) -> None:
        del tensors["model.layers.3.embed_tokens.weight"]
        del tensors["model.layers.3.shared_head.head.weight"]

    assert changed(tmp_path, "deepseek-v3", drop).mtp_layers == 1


def test_rotary_buffers_are_no_weights(tmp_path: Path) -> None:
    """Old checkpoints carry them; every loader passes them over."""
    extra: dict[str, Entry] = {f"model.layers.{n}.self_attn.rotary_emb.inv_freq": ("F32", (32,)) for n in range(3)}
    assert changed(tmp_path, "llama-3.1-8b", lambda tensors: tensors.update(extra)).layers == 3


def test_a_second_copy_of_the_weights_is_passed_over(tmp_path: Path) -> None:
    """Some releases also ship them in their own framework's names."""
    config, graph = model("mixtral-8x7b")
    folder = write_checkpoint(tmp_path / "mixtral-8x7b", config, entries(graph))
    write_file(folder / "consolidated.safetensors", *header_of({"tok_embeddings.weight": ("BF16", (4, 4))}))
    assert read_model(str(folder)) == graph


@pytest.mark.parametrize(
    "change, message, help",
    [
        (lambda t: t.pop(KV_B), f"`{KV_B}` is missing", ""),
        (lambda t: t.pop(EXPERT_3), f"`{EXPERT_3}` is missing", "Is a shard missing"),
        (lambda t: t.update({"lm_hade.weight": t.pop("lm_head.weight")}), "`lm_head.weight` is mis", "lm_hade.weight"),
        (lambda t: t.pop(f"{KV_B}_scale_inv"), "F8_E4M3 without `weight_scale_inv`", ""),
        (lambda t: t.update({KV_B: ("BF16", t[KV_B][1])}), "is stored as BF16, not as F8_E4M3", ""),
        (lambda t: t.update({KV_B: ("U8", t[KV_B][1])}), "is stored as U8, not as F8_E4M3", ""),
        (lambda t: t.update({KV_B: ("F8_E4M3", (8, 8))}), "has the shape [8, 8]", ""),
        (
            lambda t: t.update({f"{KV_B}_scale_inv": ("F32", (1, 1))}),
            "has the shape [1, 1], where [2, 1] is fp8_block",
            "",
        ),
        (lambda t: t.update({f"{KV_B}_scale_inv": ("U8", t[f"{KV_B}_scale_inv"][1])}), "where", "gives this weight"),
        (lambda t: t.update({"model.layers.1.self_attn.kv_c_proj.weight": ("BF16", (8,))}), "explains", KV_B),
        (lambda t: t.update({EXPERT_3.replace("3.up", "3.upp"): ("BF16", (8,))}), "explains", EXPERT_3),
        (lambda t: t.update({EXPERT_3.replace(".3.", ".6."): ("BF16", (8,))}), "explains", "has 6 experts a layer"),
        (lambda t: t.update({"lm_heads.weight": ("BF16", (8,))}), "explains", "lm_head.weight"),
        (
            lambda t: t.update({"model.layers.4.mlp.gate.weight": ("BF16", (8,))}),
            "explains",
            "`config.json` has 3 layers and 1 MTP layer.",
        ),
        (lambda t: t.update({"": ("BF16", (8,))}), "explains", ""),
    ],
)
def test_a_tensor_that_is_not_what_it_should_be_is_named(
    tmp_path: Path, change: Callable[[dict[str, Entry]], object], message: str, help: str
) -> None:
    """The message has the folder and the tensor, and the help the nearest name where there is one."""
    with pytest.raises(ModelError) as caught:
        changed(tmp_path, "deepseek-v3", change)
    assert message in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert help in caught.value.help


@pytest.mark.parametrize("misspelt", [KEY.replace("k_proj", "k_porj"), KEY.replace("k_proj", "key_proj")])
def test_a_missing_tensor_is_told_with_what_nothing_explains(tmp_path: Path, misspelt: str) -> None:
    """Not with `v_proj`, which is there in its own right and as much like it."""
    with pytest.raises(ModelError, match=r"`model\.layers\.1\.self_attn\.k_proj\.weight` is missing") as caught:
        changed(tmp_path, "qwen3-4b", lambda tensors: tensors.update({misspelt: tensors.pop(KEY)}))
    assert caught.value.help.startswith(f"The nearest stored name that nothing explains is `{misspelt}`.")


def test_layers_that_the_configuration_does_not_count_are_told_with_its_number(tmp_path: Path) -> None:
    """Nothing is said of other tools: the checkpoint has another depth than its `config.json`."""
    config, graph = model("qwen3-4b")
    folder = write_checkpoint(tmp_path / "m", {**config, "num_hidden_layers": 2}, entries(graph))
    with pytest.raises(ModelError, match=r"`model\.layers\.2\.\S+` is no tensor") as caught:
        read_model(str(folder))
    assert caught.value.help == "`config.json` has 2 layers. Is it another model's?"


def test_blocks_of_a_tower_beyond_its_depth_are_told_with_their_number(tmp_path: Path) -> None:
    """They are no decoder layers: the help names what they are."""
    extra = "model.visual.blocks.{0}.attn.proj.weight"

    def add(tensors: dict[str, Entry]) -> None:
        depth = len({name.split(".")[3] for name in tensors if name.startswith("model.visual.blocks.")})
        tensors[extra.format(depth)] = tensors[extra.format(0)]

    with pytest.raises(ModelError, match="explains") as caught:
        changed(tmp_path, "qwen3-vl-30b-a3b", add)
    assert re.match(r"`config\.json` has \d+ of `model\.visual\.blocks`\. ", caught.value.help)


def test_safetensors_without_a_config_are_not_guessed_at(tmp_path: Path) -> None:
    """The configuration says which family it is."""
    config, graph = model("qwen3-4b")
    folder = write_checkpoint(tmp_path / "m", config, entries(graph))
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"no `config\.json`"):
        read_model(str(folder))


def test_a_tensor_in_two_shards_is_an_error(tmp_path: Path) -> None:
    """Two checkpoints in one folder are not read as one."""
    config, graph = model("qwen3-4b")
    folder = write_checkpoint(tmp_path / "m", config, entries(graph))
    write_file(folder / "old.safetensors", *header_of({"model.norm.weight": ("BF16", (256,))}))
    with pytest.raises(ModelError, match=r"`model\.norm\.weight` also stands in another shard"):
        read_model(str(folder))


def _entry(dtype: object = "BF16", shape: object = [4], offsets: object = [0, 8]) -> bytes:
    return json.dumps({"a.weight": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()


def _two(first: list[int], second: list[int]) -> bytes:
    entry = {"dtype": "BF16", "shape": [4]}
    return json.dumps({"a": {**entry, "data_offsets": first}, "b": {**entry, "data_offsets": second}}).encode()


@pytest.mark.parametrize(
    "header, weights, message",
    [
        (b"", 0, "not valid JSON"),
        (b"{", 0, "not valid JSON"),
        (b"\xff", 0, "not valid JSON"),
        pytest.param(b"[" * 200_000, 0, "not valid JSON", id="nested"),
        (b"[]", 0, "no JSON object"),
        (b'{"a": 1}', 8, "`a` has no `dtype`"),
        (b'{"a": {}}', 8, "`a` has no `dtype`"),
        (_entry(dtype=["BF16"]), 8, "has no `dtype`"),
        (_entry(shape=4), 8, "has no `dtype`"),
        (_entry(offsets=[0]), 8, "has no `dtype`"),
        (_entry(dtype="BF17"), 8, "unknown dtype 'BF17'"),
        (_entry(shape=[-4]), 8, "has the shape [-4]"),
        (_entry(shape=[2.0, 2]), 8, "has the shape"),
        (_entry(shape=[1] * 9), 8, "has the shape"),
        (_entry(shape=[10**40]), 8, "has the shape"),
        (_entry(offsets=[0, 6]), 8, "another length"),
        (_entry(offsets=[8, 0]), 8, "another length"),
        (_entry(offsets=[-8, 0]), 8, "another length"),
        (_entry(offsets=[0.0, 8.0]), 8, "another length"),
        (_entry(offsets=[8, 16]), 8, "beyond the end"),
        (_entry(), 7, "beyond the end"),
        (_two([0, 8], [4, 12]), 12, "`b` overlaps `a`"),
        (_two([4, 12], [0, 8]), 12, "`a` overlaps `b`"),
        (_two([0, 8], [12, 20]), 20, "`b` begins 4 bytes after the end of `a`"),
        (_two([4, 12], [12, 20]), 20, "4 bytes of it belong to no tensor"),
        (_two([0, 8], [8, 16]), 20, "4 bytes of it belong to no tensor"),
        (_two([0, 8], [8, 16]).replace(b'"b"', b'"a"'), 16, "lists `a` twice"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path: Path, header: bytes, weights: int, message: str) -> None:
    """Truncated, malformed or hostile: the message has the file, and the tensor where there is one."""
    (tmp_path / "config.json").write_text(json.dumps(facts("qwen3-8b")[0]))
    write_bytes(tmp_path / "model.safetensors", header, weights)
    with pytest.raises(ModelError) as caught:
        read_model(str(tmp_path))
    assert message in caught.value.message
    assert "model.safetensors" in caught.value.message


def test_an_empty_shard_is_called_that(tmp_path: Path) -> None:
    """A download that was broken off leaves one."""
    (tmp_path / "config.json").write_text(json.dumps(facts("qwen3-8b")[0]))
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match=r"model\.safetensors is empty"):
        read_model(str(tmp_path))


@pytest.mark.parametrize("content", [b"1234", (10**6).to_bytes(8, "little") + b"{}", b"\xff" * 8 + b"{}"])
def test_a_header_longer_than_its_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """Nothing is read, whatever length the first bytes claim."""
    (tmp_path / "config.json").write_text(json.dumps(facts("qwen3-8b")[0]))
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="longer than the file"):
        read_model(str(tmp_path))
