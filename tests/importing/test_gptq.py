"""GPTQ checkpoints: the settings of GPTQModel and Optimum, their exceptions, and what has no spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from importing.support import SAMPLES, counts, decisions, imported, messages, model, reading, rules, written

from precc.importing.reading import Unimportable

BASE = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "lm_head": False}


def config(**changed: Any) -> dict[str, Any]:
    """A `config.json` with a section of GPTQ."""
    return {"quantization_config": {**BASE, **changed}}


def test_every_linear_layer_of_the_decoder_is_quantized(tmp_path: Path) -> None:
    """The router, the LM head and the embedding are not."""
    path = written(tmp_path, "config.json", config())
    assert rules(path, model("qwen3-30b-a3b")) == ["default: weight int4 group 128, train bf16"]


def test_the_tool_s_own_file_says_the_same(tmp_path: Path) -> None:
    """`quantize_config.json` has the section's keys without the section."""
    section = {key: said for key, said in BASE.items() if key != "quant_method"}
    path = written(tmp_path, "quantize_config.json", section)
    assert rules(path, model("qwen3-8b")) == ["default: weight int4 group 128, train bf16"]


def test_the_first_exception_that_reaches_a_layer_decides() -> None:
    """The sample has a skipped layer inside a range of layers with eight bits."""
    found = decisions(reading(SAMPLES / "gptq_dynamic.json", model("qwen3-8b")))
    assert found["model.layers.3.mlp.up_proj"] == "weight int4 group 128, train bf16"
    assert found["model.layers.20.mlp.up_proj"] == "weight int8 group 64, train bf16"
    assert found["model.layers.20.mlp.down_proj"] == "None"
    assert messages(imported(SAMPLES / "gptq_dynamic.json", model("qwen3-8b"))) == []


def test_a_number_that_is_an_expert_s_too_reaches_more_than_it_says(tmp_path: Path) -> None:
    """`.*\\.(?:1[0-5])\\..*`, from GPTQModel's own example, means layers and takes the experts of those numbers."""
    path = written(tmp_path, "config.json", config(dynamic={r"+:.*\.(?:1[0-5])\..*": {"bits": 8}}))
    (said,) = messages(imported(path, model("qwen3-30b-a3b")))
    assert said.startswith("P904")
    assert "experts.{10..15}" in said


def test_an_open_end_reaches_the_longer_name(tmp_path: Path) -> None:
    """`mlp.gate` without `$` is the beginning of `mlp.gate_proj`."""
    path = written(tmp_path, "config.json", config(dynamic={r"-:.*mlp\.gate": {}, "-:.*visual.*": {}}))
    said = messages(imported(path, model("qwen3-8b")))
    assert [line[:4] for line in said] == ["P903", "P904"]
    assert "gate_proj" in said[1]


def test_optimum_s_list_names_what_is_quantized(tmp_path: Path) -> None:
    """A layer is quantized where its name ends with one of the list."""
    names = [["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["mlp.down_proj"]]
    path = written(tmp_path, "config.json", config(modules_in_block_to_quantize=names))
    found = reading(path, model("qwen3-8b"))
    assert counts(found)["weight int4 group 128, train bf16"] == 36 * 4
    assert decisions(found)["model.layers.0.self_attn.o_proj"] == "None"


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"sym": False}, "zero points"),
        ({"desc_act": True}, "act-order"),
        ({"bits": 3}, "3-bit integers"),
        ({"group_size": -1}, "groups of -1"),
        ({"format": "exl3"}, "`format: exl3`"),
        ({"dynamic": {"(": {}}}, "no pattern"),
        ({"dynamic": {"+:.*q_proj": {"sym": False}}}, "zero points"),
    ],
)
def test_what_has_no_spelling_is_refused(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    """With a code and the setting that it is about."""
    path = written(tmp_path, "config.json", config(**changed))
    with pytest.raises(Unimportable, match=words) as caught:
        reading(path, model("qwen3-8b"))
    assert caught.value.findings[0].code == "P902"


def test_an_order_of_groups_that_stay_runs_of_columns_is_no_matter(tmp_path: Path) -> None:
    """With `static_groups` each column has the scale of its place."""
    path = written(tmp_path, "config.json", config(desc_act=True, static_groups=True))
    assert rules(path, model("qwen3-8b")) == ["default: weight int4 group 128, train bf16"]


def test_an_exception_without_effect_may_say_anything(tmp_path: Path) -> None:
    """Zero points of layers that this model has not are not refused; the exception is reported as dead."""
    path = written(tmp_path, "config.json", config(dynamic={"+:.*experts.*": {"sym": False}}))
    assert [line[:4] for line in messages(imported(path, model("qwen3-8b")))] == ["P903"]
