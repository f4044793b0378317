"""What a `config.json` may say, and what is told when it does not make sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from graph.expansion import facts

from precc.graph import ModelError, ModelGraph, read_model
from precc.graph.config import MAX_CONFIG_BYTES

ABSENT = object()


def read(folder: Path, config: dict[str, Any]) -> ModelGraph:
    """The graph of that configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ABSENT}))
    return read_model(str(path))


def failing(folder: Path, config: dict[str, Any]) -> ModelError:
    """What is said about that configuration."""
    with pytest.raises(ModelError) as caught:
        read(folder, config)
    assert str(folder) in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "deepseek-v3", "glm-4.5-air", "mixtral-8x7b"])
def test_a_config_gives_the_graph_of_the_catalogue(tmp_path: Path, name: str) -> None:
    """From a file, a folder and the name: one graph, named after its source."""
    folder = tmp_path / name
    folder.mkdir()
    assert read(folder, facts(name)[0]) == read_model(str(folder)) == read_model(name)


def test_a_config_of_another_name_is_named_after_its_file(tmp_path: Path) -> None:
    """`my-model.json` is the model `my-model`."""
    path = tmp_path / "my-model.json"
    path.write_text(json.dumps(facts("qwen3-8b")[0]))
    assert read_model(str(path)).name == "my-model"


def test_the_language_model_of_a_wrapper_is_read(tmp_path: Path) -> None:
    """Fields in `text_config` count as the model's own."""
    config = facts("qwen3-8b")[0]
    architectures = config.pop("architectures")
    assert read(tmp_path, {"architectures": architectures, "text_config": config}).layers == 36


def test_a_tied_head_is_taken_as_not_stored(tmp_path: Path) -> None:
    """A configuration does not say; most releases leave it out."""
    graph = read(tmp_path, facts("qwen3-0.6b")[0])
    assert "lm_head.weight" not in {t.name for t in graph.tensors}


def test_modules_that_are_not_converted_stay_high(tmp_path: Path) -> None:
    """Names in the list cover whole components: layer 1 does not mean layer 10, `gate` not `gate_proj`."""
    config = facts("qwen3-30b-a3b")[0]
    kept = ["model.layers.1", "self_attn.o_proj", "gate"]
    quantization = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": kept}
    graph = read(tmp_path, {**config, "quantization_config": quantization})
    high = {t.name for t in graph.tensors if t.is_gemm and not t.protected and t.dtype == "bf16"}
    assert "model.layers.1.self_attn.q_proj.weight" in high
    assert "model.layers.10.self_attn.o_proj.weight" in high
    assert "model.layers.10.self_attn.q_proj.weight" not in high
    assert "model.layers.10.mlp.experts.{0..127}.gate_proj.weight" not in high


def test_dense_layers_of_a_sparse_model_have_a_plain_mlp(tmp_path: Path) -> None:
    """Both ways in which Qwen3-MoE says which layers are dense."""
    config = {**facts("qwen3-30b-a3b")[0], "mlp_only_layers": [3], "decoder_sparse_step": 2}
    graph = read(tmp_path, config)
    assert graph.config["moe_layers"] == tuple(layer for layer in range(1, 48, 2) if layer != 3)
    plain = {t.layer for t in graph.tensors if t.path[-2:] == ("mlp", "up_proj")}
    assert plain == {*range(0, 48, 2), 3}


@pytest.mark.parametrize("key", ["hidden_size", "num_experts", "head_dim", "num_hidden_layers", "vocab_size"])
@pytest.mark.parametrize("value", [ABSENT, None, 0, -1, 1.5, "7", True, [4], 10**12, 10**18])
def test_a_size_that_makes_no_sense_is_named(tmp_path: Path, key: str, value: object) -> None:
    """The message has the file and the field, and the help what is allowed."""
    error = failing(tmp_path, {**facts("qwen3-30b-a3b")[0], key: value})
    assert f"`{key}`" in error.message
    assert "integer from 1 to" in error.help


@pytest.mark.parametrize(
    "name, changed, named",
    [
        ("qwen3-8b", {"num_key_value_heads": 5}, "num_key_value_heads"),
        ("llama-3.1-8b", {"num_attention_heads": 24, "num_key_value_heads": 8}, "num_attention_heads"),
        ("qwen3-30b-a3b", {"num_experts_per_tok": 129}, "num_experts_per_tok"),
        ("deepseek-v3", {"first_k_dense_replace": 62}, "first_k_dense_replace"),
        ("deepseek-v3", {"num_nextn_predict_layers": -1}, "num_nextn_predict_layers"),
        ("deepseek-v3", {"q_lora_rank": ABSENT}, "q_lora_rank"),
        ("deepseek-v3.2", {"q_lora_rank": None}, "q_lora_rank"),
        ("deepseek-v3", {"n_routed_experts": False}, "n_routed_experts"),
        ("deepseek-v3", {"topk_method": "best"}, "topk_method"),
        ("deepseek-v3", {"attention_bias": True}, "attention_bias"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [1, "2"]}, "mlp_only_layers"),
        ("qwen3-30b-a3b", {"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ("qwen3-30b-a3b", {"torch_dtype": "int8"}, "torch_dtype"),
        ("qwen3-30b-a3b", {"torch_dtype": ["bfloat16"]}, "torch_dtype"),
        ("qwen3-30b-a3b", {"quantization_config": "fp8"}, "quantization_config"),
        ("qwen3-30b-a3b", {"quantization_config": {"quant_method": "bitsandbytes"}}, "quant_method"),
        (
            "qwen3-30b-a3b",
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}},
            "weight_block_size",
        ),
        ("qwen3-30b-a3b", {"architectures": "Qwen3MoeForCausalLM"}, "architectures"),
        ("qwen3-30b-a3b", {"architectures": []}, "architectures"),
        ("qwen3-30b-a3b", {"architectures": [7]}, "architectures"),
        ("qwen3-30b-a3b", {"architectures": ABSENT, "model_type": ABSENT}, "architectures"),
        ("qwen3-30b-a3b", {"model_type": 3}, "model_type"),
        ("qwen3-30b-a3b", {"model_type": "llama"}, "model_type"),
    ],
)
def test_a_field_that_contradicts_or_is_unknown_is_named(
    tmp_path: Path, name: str, changed: dict[str, object], named: str
) -> None:
    """One sentence with the field at fault, and one with what it has to be."""
    error = failing(tmp_path, {**facts(name)[0], **changed})
    assert named in error.message
    assert error.help.startswith("It has to be ")


def test_an_unknown_architecture_is_told_with_the_nearest(tmp_path: Path) -> None:
    """All known ones are listed, the most alike first."""
    error = failing(tmp_path, {**facts("qwen3-8b")[0], "architectures": ["Qwen3MoEForCausalLM"]})
    assert "Qwen3MoEForCausalLM" in error.message
    assert error.help.startswith("Did you mean `Qwen3MoeForCausalLM`")
    assert "`MixtralForCausalLM`" in error.help


@pytest.mark.parametrize("field, name", [("architectures", "FooForCausalLM"), ("model_type", "x_moe")])
def test_an_ending_that_all_have_makes_no_name_near(tmp_path: Path, field: str, name: str) -> None:
    """`ForCausalLM` alone is most of many an architecture."""
    config = {field: [name] if field == "architectures" else name}
    error = failing(tmp_path, config)
    assert f"`{field}` names `{name}`" in error.message
    assert error.help.startswith("Known are ")


def test_a_known_name_with_another_ending_is_near(tmp_path: Path) -> None:
    """What a fine-tune without its tower is called."""
    error = failing(tmp_path, {"architectures": ["Qwen3VLMoeForCausalLM"]})
    assert error.help.startswith("Did you mean `Qwen3VLMoeForConditionalGeneration`")


def test_a_config_without_architecture_goes_by_its_model_type(tmp_path: Path) -> None:
    """Kimi-K2 has a model type of its own and DeepSeek-V3's architecture."""
    graph = read(tmp_path, {**facts("kimi-k2")[0], "architectures": ABSENT})
    assert graph.architecture == "DeepseekV3ForCausalLM"
    error = failing(tmp_path, {"model_type": "kimi_k9"})
    assert "`kimi_k2`" in error.help


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "\udc80"),
        pytest.param("[" * 100_000, id="nested"),
        pytest.param('{"hidden_size": 1' + "0" * 5000 + "}", id="long number"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    """Not JSON, not an object, nested too deep, a number too long, not UTF-8."""
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelError, match=r"config\.json"):
        read_model(str(path))


def test_a_file_of_any_size_is_not_read(tmp_path: Path) -> None:
    """A configuration is small; a checkpoint given in its place is not loaded."""
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(MAX_CONFIG_BYTES + 1)
    with pytest.raises(ModelError, match="larger than"):
        read_model(str(path))


FULL_THEN_SHARED = ["full", *["shared"] * 77]


@pytest.mark.parametrize(
    "changes, layers",
    [
        ({}, 78),
        ({"indexer_types": FULL_THEN_SHARED}, 1),
        ({"index_topk_pattern": "FFS" * 26}, 52),
        ({"index_topk_pattern": None, "index_topk_freq": 4, "index_skip_topk_offset": 3}, 21),
        ({"index_topk_freq": 2}, 40),
        ({"indexer_types": FULL_THEN_SHARED, "index_topk_pattern": "F" * 78}, 1),
    ],
)
def test_layers_that_have_an_indexer_are_listed_spelled_or_counted(
    tmp_path: Path, changes: dict[str, Any], layers: int
) -> None:
    """The list comes before the text, and the text before the rhythm, as engines read them."""
    graph = read(tmp_path, {**facts("glm-5")[0], **changes})
    assert len(graph.config["indexer_layers"]) == layers


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"indexer_types": ["full", "shared"]}, "indexer_types"),
        ({"indexer_types": ["shared", *["full"] * 77]}, "indexer_types"),
        ({"indexer_types": ["full", *["half"] * 77]}, "indexer_types"),
        ({"index_topk_pattern": "FS"}, "index_topk_pattern"),
        ({"index_topk_pattern": "FX" * 39}, "index_topk_pattern"),
        ({"index_topk_freq": 0}, "index_topk_freq"),
        ({"mlp_layer_types": ["sparse"] * 78}, "mlp_layer_types"),
        ({"q_lora_rank": None}, "q_lora_rank"),
    ],
)
def test_contradictions_about_indexers_are_named(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    """A list of another length, a first layer with nothing to reuse, words and letters that mean nothing."""
    error = failing(tmp_path, {**facts("glm-5")[0], **changes})
    assert f"`{field}`" in error.message


@pytest.mark.parametrize(
    "name, changes, field",
    [
        ("gemma-4-31b", {"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input"),
        ("gemma-4-31b", {"attention_k_eq_v": False}, "attention_k_eq_v"),
        ("gemma-4-31b", {"num_global_key_value_heads": 5}, "num_global_key_value_heads"),
        ("gemma-4-31b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("mimo-v2-flash", {"hybrid_layer_pattern": [0, 2]}, "hybrid_layer_pattern"),
        ("mimo-v2-flash", {"moe_layer_freq": [0]}, "routed_layer_pattern"),
        ("mimo-v2-flash", {"swa_num_key_value_heads": 7}, "swa_num_key_value_heads"),
        ("minimax-m3", {"shared_intermediate_size": 100}, "shared_intermediate_size"),
    ],
)
def test_what_a_table_does_not_cover_is_named(tmp_path: Path, name: str, changes: dict[str, Any], field: str) -> None:
    """Other sizes of a family, with tensors that its table lacks, are no guess."""
    config = facts(name)[0]
    inner = config.get("text_config", config)
    assert f"`{field}`" in failing(tmp_path, {**config, **changes, "text_config": {**inner, **changes}}).message


def test_sections_of_the_language_model_and_of_a_tower_are_read(tmp_path: Path) -> None:
    """`text_config.sparse_attention_config` and `vision_config.img_token_compression_config` are a level deeper."""
    config = facts("minimax-m3")[0]
    assert read(tmp_path, config).parameters == read_model("minimax-m3").parameters
    config["text_config"]["sparse_attention_config"]["sparse_num_index_heads"] = 0
    assert "sparse_attention_config.sparse_num_index_heads" in failing(tmp_path, config).message
