"""AWQ checkpoints: AutoAWQ's list of parts of names, and what has no spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from importing.support import decisions, imported, messages, model, reading, rules, written

from precc.importing.reading import Unimportable

BASE = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": False}


def config(**changed: Any) -> dict[str, Any]:
    """A `config.json` with a section of AWQ."""
    return {"quantization_config": {**BASE, **changed}}


def test_symmetric_awq_is_weights_in_four_bits(tmp_path: Path) -> None:
    """Of every linear layer of the decoder layers."""
    path = written(tmp_path, "config.json", config(modules_to_not_convert=None))
    assert rules(path, model("qwen3-30b-a3b")) == ["default: weight int4 group 128, train bf16"]


def test_the_tool_s_own_file_has_other_keys(tmp_path: Path) -> None:
    """AutoAWQ's `quant_config.json`."""
    own = {"zero_point": False, "q_group_size": 64, "w_bit": 4, "version": "GEMM", "modules_to_not_convert": ["gate"]}
    path = written(tmp_path, "quant_config.json", own)
    found = decisions(reading(path, model("mixtral-8x7b")))
    assert found["model.layers.0.block_sparse_moe.experts.0.w1"] == "weight int4 group 64, train bf16"


def test_an_entry_is_a_part_of_a_name(tmp_path: Path) -> None:
    """`gate`, which Mixtral's class lists for its router, takes `gate_proj` of a model that has one."""
    path = written(tmp_path, "config.json", config(modules_to_not_convert=["gate"]))
    graph = model("qwen3-30b-a3b")
    found = decisions(reading(path, graph))
    assert found["model.layers.0.mlp.experts.0.gate_proj"] == "None"
    assert found["model.layers.0.mlp.experts.0.up_proj"] != "None"
    (said,) = messages(imported(path, graph))
    assert said.startswith("P904")
    assert "gate_proj" in said


def test_an_entry_with_a_layer_s_number_kept_nothing_in_autoawq(tmp_path: Path) -> None:
    """AutoAWQ compares what follows the number; servers the whole name, and would look for BF16 weights."""
    path = written(tmp_path, "config.json", config(modules_to_not_convert=["model.layers.0."]))
    (said,) = messages(imported(path, model("qwen3-8b")))
    assert "AutoAWQ looks below a layer's number" in said


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"zero_point": True}, "zero points"),
        ({"zero_point": None, "bits": 5}, "5-bit integers"),
        ({"group_size": 16}, "groups of 16"),
        ({"version": "turbo"}, "layout"),
        ({"modules_to_not_convert": "gate"}, "no list of names"),
    ],
)
def test_what_has_no_spelling_is_refused(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    """With a code and the setting that it is about."""
    path = written(tmp_path, "config.json", config(**changed))
    with pytest.raises(Unimportable, match=words) as caught:
        reading(path, model("qwen3-8b"))
    assert caught.value.findings[0].code == "P902"


def test_a_file_without_the_word_has_zero_points(tmp_path: Path) -> None:
    """It is what AutoAWQ does unless told."""
    section = {key: said for key, said in BASE.items() if key != "zero_point"}
    path = written(tmp_path, "config.json", {"quantization_config": section})
    with pytest.raises(Unimportable, match="unless told"):
        reading(path, model("qwen3-8b"))
