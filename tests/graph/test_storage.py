"""What a configuration says about how its checkpoint stores weights, whichever tool wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from graph.expansion import facts

from precc.graph import ModelError, ModelGraph, read_model
from precc.graph.config import describe
from precc.graph.forms import Form

MOE, DENSE = "qwen3-30b-a3b", "qwen3-8b"


def graph(name: str, quantization: object) -> ModelGraph:
    """The graph of a configuration with that `quantization_config`."""
    return describe({**facts(name)[0], "quantization_config": quantization}, name).graph(name)


def forms(found: ModelGraph) -> dict[str, set[str]]:
    """The forms of weights, with the last words of those that are stored so in layer 5."""
    made: dict[str, set[str]] = {}
    for tensor in found.tensors:
        if tensor.layer == 5 and tensor.is_gemm:
            made.setdefault(str(tensor.form), set()).add(tensor.path[-1])
    return made


def _group(bits: int, kind: str, strategy: str | None = None, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "dynamic": False, **more}
    return {"targets": ["Linear"], "weights": weights}


def _compressed(**group: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


FP8 = {"quant_method": "fp8"}
MODELOPT = {"quant_method": "modelopt"}
STATIC_NVFP4 = ("weight", "weight_scale", "weight_scale_2", "input_scale")
PACKED = ("weight_packed", "weight_scale")


@pytest.mark.parametrize(
    "quantization, form",
    [
        ({**FP8, "weight_block_size": [128, 128]}, Form("fp8", (128, 128))),
        ({**FP8, "weight_block_size": [1, 32]}, Form("mxfp8", (1, 32))),
        ({**FP8, "activation_scheme": "static"}, Form("fp8", None, ("weight", "weight_scale", "input_scale"))),
        ({**FP8, "activation_scheme": "dynamic"}, Form("fp8", None, ("weight", "weight_scale"))),
        ({"quant_method": "mxfp8"}, Form("mxfp8", (1, 32))),
        ({**MODELOPT, "quant_algo": "NVFP4"}, Form("nvfp4", (1, 16), STATIC_NVFP4)),
        ({"quant_algo": "NVFP4"}, Form("nvfp4", (1, 16), STATIC_NVFP4)),
        ({**MODELOPT, "quant_algo": "W4A16_NVFP4"}, Form("nvfp4", (1, 16))),
        ({**MODELOPT, "quant_algo": "FP8"}, Form("fp8", None, ("weight", "weight_scale", "input_scale"))),
        ({**MODELOPT, "quant_algo": "MXFP8"}, Form("mxfp8", (1, 32), ("weight", "weight_scale"))),
        ({**MODELOPT, "quant_algo": "FP8_PB_WO"}, Form("fp8", (128, 128), ("weight", "weight_scale"))),
        (_compressed(**_group(4, "int", "group", group_size=32, symmetric=True)), Form("int4", (1, 32))),
        (
            _compressed(**_group(4, "int", "group", group_size=128, symmetric=False)),
            Form("int4", (1, 128), (*PACKED, "weight_shape", "weight_zero_point")),
        ),
        (_compressed(**_group(4, "int", "channel")), Form("int4", (1, 0))),
        (_compressed(**_group(8, "int", "channel")), Form("int8", (1, 0))),
        (_compressed(**_group(8, "float", "channel")), Form("fp8", (1, 0), ("weight", "weight_scale"))),
        (_compressed(**_group(8, "float", "block")), Form("fp8", (128, 128), ("weight", "weight_scale"))),
        (
            _compressed(**_group(8, "float", "tensor"), input_activations={"dynamic": False}),
            Form("fp8", None, ("weight", "weight_scale", "input_scale")),
        ),
        (
            _compressed(**_group(4, "float", "tensor_group", group_size=16)),
            Form("nvfp4", (1, 16), (*PACKED, "weight_global_scale")),
        ),
        (_compressed(**_group(4, "float", group_size=32)), Form("mxfp4", (1, 32), PACKED)),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128},
            Form("int4", (1, 128), ("qweight", "qzeros", "scales", "g_idx")),
        ),
        ({"quant_method": "awq", "bits": 4, "group_size": -1}, Form("int4", (1, 0), ("qweight", "qzeros", "scales"))),
    ],
)
def test_every_method_says_in_which_form_weights_are(quantization: dict[str, Any], form: Form) -> None:
    """Linear layers are; routers, heads, norms and embeddings are not, whether or not a list says so."""
    found = graph(MOE, quantization)
    assert {t.form for t in found.tensors if t.is_gemm and not t.protected} == {form}
    assert {t.dtype for t in found.tensors if t.protected or not t.is_gemm} == {"bf16"}
    assert found.config["quantization"] == form.format
    assert found.stored_tensors == read_model(MOE).stored_tensors + sum(
        t.count * (len(list(t.stored())) - 1) for t in found.tensors if t.form == form
    )


def test_lists_are_read_as_the_tools_write_them() -> None:
    """Runs of components, globs that cross dots, and regular expressions."""
    kept = {
        "model.layers.5.self_attn.q_proj": {"q_proj"},
        "q_proj": {"q_proj"},
        "model.layers.5*": {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
        "*.self_attn.*": {"q_proj", "k_proj", "v_proj", "o_proj"},
        "re:.*self_attn.*": {"q_proj", "k_proj", "v_proj", "o_proj"},
        "re:.*mlp\\.(gate|up)_proj.*": {"gate_proj", "up_proj"},
        "proj": set(),
        "model.layers.50": set(),
    }
    for entry, words in kept.items():
        found = graph(DENSE, {**MODELOPT, "quant_algo": "NVFP4", "ignore": [entry]})
        assert forms(found).get("bf16", set()) == words, entry


def test_a_mix_lists_its_modules() -> None:
    """Each in its own format, a head among them; what is not listed is left as it is."""
    layers = {
        **{f"model.layers.{at}.self_attn.{part}_proj": {"quant_algo": "FP8"} for at in range(48) for part in "qkvo"},
        **{f"model.layers.{at}.mlp.experts": {"quant_algo": "NVFP4"} for at in range(48)},
        "lm_head": {"quant_algo": "W4A16_NVFP4"},
    }
    found = graph(MOE, {**MODELOPT, "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert forms(found) == {
        "fp8": {"q_proj", "k_proj", "v_proj", "o_proj"},
        "nvfp4 in 1×16 blocks": {"gate_proj", "up_proj", "down_proj"},
        "bf16": {"gate"},
    }
    assert {t.name: t.form for t in found.tensors}["lm_head.weight"] == Form("nvfp4", (1, 16))
    assert found.config["quantization"] == "mixed"


def test_a_group_may_name_its_modules() -> None:
    """compressed-tensors has a list of targets a group."""
    groups = {
        "group_0": {**_group(8, "float", "channel"), "targets": ["re:.*self_attn.*"]},
        "group_1": {**_group(4, "int", "group", group_size=32), "targets": ["re:.*experts.*"]},
    }
    found = graph(MOE, {"quant_method": "compressed-tensors", "config_groups": groups})
    assert forms(found) == {
        "fp8 with a scale a row": {"q_proj", "k_proj", "v_proj", "o_proj"},
        "int4 in 1×32 blocks": {"gate_proj", "up_proj", "down_proj"},
        "bf16": {"gate"},
    }


def test_modelopts_own_file_is_read_where_the_configuration_is_silent(tmp_path: Path) -> None:
    """`hf_quant_config.json` beside `config.json`."""
    (tmp_path / "config.json").write_text(json.dumps(facts(DENSE)[0]))
    shown = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(shown))
    assert read_model(str(tmp_path)).config["quantization"] == "nvfp4"


@pytest.mark.parametrize(
    "quantization, named",
    [
        ({**MODELOPT, "quant_algo": "NVFP5"}, "quant_algo"),
        (MODELOPT, "quant_algo"),
        ({**MODELOPT, "quant_algo": "MIXED_PRECISION"}, "quantized_layers"),
        ({**MODELOPT, "quant_algo": "MIXED_PRECISION", "quantized_layers": {"x": {"quant_algo": "Q"}}}, "layers.x"),
        ({**MODELOPT, "quant_algo": "FP8", "ignore": "lm_head"}, "ignore"),
        ({**MODELOPT, "quant_algo": "FP8", "ignore": ["re:("]}, "re:("),
        ({**FP8, "weight_block_size": [128]}, "weight_block_size"),
        ({**FP8, "weight_block_size": [[128], 128]}, "weight_block_size"),
        ({**FP8, "scale_fmt": "e8m0"}, "scale_fmt"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        (_compressed(**_group(3, "int", "group")), "config_groups.group_0.weights"),
        (_compressed(**_group(4, "int", "group", group_size=48)), "group_size"),
        ({"quant_method": "gptq", "bits": 8}, "bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "x"}, "group_size"),
        ({"quant_method": ["fp8"]}, "quant_method"),
        ({}, "quant_method"),
    ],
)
def test_what_no_method_means_is_named(quantization: dict[str, Any], named: str) -> None:
    """The field at fault, and what it has to be."""
    with pytest.raises(ModelError) as caught:
        graph(MOE, quantization)
    assert named in caught.value.message
    assert caught.value.help.startswith("It has to be ")
