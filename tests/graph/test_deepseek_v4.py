"""DeepSeek-V4: a table of its own, whose names transformers has only in part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from graph.checkpoint_files import write_checkpoint

from precc.graph import ModelError, read_model
from precc.graph.config import describe
from precc.graph.model import ModelGraph
from precc.graph.shrinking import complete_config, shrink
from precc.syntax.words import Role

FLASH = "deepseek-v4-flash"

RELEASED = {
    "model.hc_head.hc_": "hc_head_",
    "model.embed_tokens.": "embed.",
    "model.layers.": "layers.",
    "model.norm.": "norm.",
    ".attn.norm.": ".attn.kv_norm.",
}
"""What transformers would save → what the release has, where its way back goes astray."""


def test_the_parameters_are_those_of_the_model_page() -> None:
    """284 billion, as its name says, beside the MTP layer."""
    graph = read_model(FLASH)
    assert sum(t.parameters for t in graph.tensors if t.mtp is None) == 284_332_240_471
    assert {t.form.format for t in graph.tensors if t.role is Role.ROUTED_EXPERTS} == {"mxfp4"}
    assert {t.form.words for t in graph.tensors if t.form.is_quantized} == {("weight", "scale")}


def test_the_larger_one_has_the_parameters_of_its_name() -> None:
    """1.6 trillion, of which the MTP layer has 26 billion."""
    tensors = read_model("deepseek-v4-pro").tensors
    assert sum(t.parameters for t in tensors) == 1_598_837_347_742
    assert sum(t.parameters for t in tensors if t.mtp is None) == 1_572_997_201_763


def test_what_a_layer_attends_to_decides_its_tensors() -> None:
    """A window, a choice of compressed keys by an indexer, all of them compressed further; hashed layers first."""
    tensors = read_model(FLASH).tensors
    indexed = {t.layer for t in tensors if t.role is Role.INDEXER}
    compressed = {t.layer: t.shape for t in tensors if t.path[-2:] == ("compressor", "wkv") and len(t.path) == 5}
    assert indexed == set(range(2, 43, 2))
    assert compressed == {layer: (512 if layer % 2 else 1024, 4096) for layer in range(2, 43)}
    corrected = {t.layer for t in tensors if t.role is Role.ROUTER and t.part == "bias"}
    assert corrected == {None, *range(3, 43)}


@pytest.mark.slow
def test_a_small_one_has_the_weights_of_transformers_own() -> None:
    """Name by name and shape by shape, but for MTP layers, which it does not build, and tables of integers."""
    small = shrink(read_model(FLASH), layers=4)
    config = {key: value for key, value in small.config.items() if key not in ("quantization_config", "rope_scaling")}
    script = str(Path(__file__).with_name("meta_models.py"))
    done = subprocess.run([sys.executable, script], input=json.dumps({"v4": config}), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    saved = {released(name): tuple(shape) for name, shape in json.loads(done.stdout)["v4"].items()}
    tables = [name for name in saved if name.endswith("tid2eid")]
    assert len(tables) == small.graph.config["num_hash_layers"] == 2
    assert {name: shape for name, shape in saved.items() if name not in tables} == shapes(small.graph)


def released(name: str) -> str:
    """A name as the release has it."""
    for theirs, own in RELEASED.items():
        name = name.replace(theirs, own)
    return name


def shapes(graph: ModelGraph) -> dict[str, tuple[int, ...]]:
    """The weights of a graph, but for those of MTP layers."""
    return {
        f"{module}.{tensor.parameter}" if tensor.parameter else module: tensor.shape
        for tensor in graph.tensors
        if tensor.mtp is None
        for module in tensor.modules()
    }


def test_a_table_of_integers_in_a_checkpoint_is_no_weight(tmp_path: Path) -> None:
    """It is passed over, and the weights around it are those of the table."""
    small = shrink(read_model(FLASH), layers=4)
    config = {key: value for key, value in small.config.items() if key not in ("quantization_config", "expert_dtype")}
    graph = describe(config, FLASH).graph(FLASH)
    dtypes = {"bf16": "BF16", "fp32": "F32"}
    entries = {
        f"{module}.{tensor.parameter}" if tensor.parameter else module: (dtypes[tensor.dtype], tensor.shape)
        for tensor in graph.tensors
        for module in tensor.modules()
    }
    table = {"layers.0.ffn.gate.tid2eid": ("I64", (graph.config["vocab_size"], 2))}
    folder = write_checkpoint(tmp_path / "v4", config, {**entries, **table})
    assert read_model(str(folder)).tensors == graph.tensors


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"compress_ratios": [0] * 43}, "compress_ratios"),
        ({"compress_ratios": [*[0] * 43, 4]}, "compress_ratios"),
        ({"compress_ratios": [*[0] * 42, 8, 0]}, "compress_ratios"),
        ({"num_hash_layers": 44}, "num_hash_layers"),
        ({"o_groups": 7}, "o_groups"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
    ],
)
def test_what_makes_no_sense_is_named(changes: dict[str, Any], field: str) -> None:
    """A list without the MTP layer, one that compresses it, a ratio that no layer has, groups that do not divide."""
    with pytest.raises(ModelError, match=f"`{field}`"):
        describe({**complete_config(read_model(FLASH)), **changes}, FLASH)
