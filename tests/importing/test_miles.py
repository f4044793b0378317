"""Miles' flags: converter, trainer, live export and server of one script, where they agree and where they do not."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from importing.support import SAMPLES, counts, decisions, imported, messages, model, reading, rules, written

from precc.importing.reading import Unimportable
from precc.pipeline import compile_policy
from precc.source import SourceFile

TRAIN = "python3 train.py --bf16 --transformer-impl transformer_engine --hf-checkpoint /models/M"
MXFP8 = "--fp8-format e4m3 --fp8-recipe mxfp8"
NVFP4 = "--fp4-format e2m1 --fp4-recipe nvfp4"
TO_MXFP8 = "python tools/convert_hf_to_mxfp8.py --model-dir /models/M --save-dir /models/N"
TO_NVFP4 = "python tools/convert_hf_to_nvfp4.py --model-dir /models/M --save-dir /models/N"

EXPERTS = """
configs:
  nvfp4: {transformer_engine_config_type: "TEQuantizationParams", training_recipe: {fp4_quantization_recipe: "nvfp4"}}
  bf16: {transformer_engine_config_type: "TEQuantizationParams", training_recipe: {}}
matchers:
  fc1: {type: "glob", enabled: true, pattern: "*.mlp.experts.linear_fc1", config: "nvfp4"}
  fc2: {type: "glob", enabled: true, pattern: "*.mlp.experts.linear_fc2", config: "nvfp4"}
  default_bf16: {type: "glob", enabled: true, pattern: "*", config: "bf16"}
"""

PER_TOKEN = """
export NVTE_NVFP4_DISABLE_2D_QUANTIZATION=1 NVTE_NVFP4_DISABLE_RHT=1 NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING=1
export NVTE_NVFP4_ROW_SCALED_ACTIVATION=1 NVTE_BACKWARD_OVERRIDE=high_precision
export SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION=1
"""


def inline(recipes: str) -> str:
    """The recipe file as Miles passes it on."""
    return f"--te-precision-config-file base64:{b64encode(recipes.encode()).decode()}"


def script(folder: Path, *commands: str) -> str:
    """A launch script."""
    return written(folder, "run.sh", "\n".join(("#!/bin/bash", *commands, "")))


def test_two_commands_and_a_recipe_file_are_one_policy() -> None:
    """The sample says the same in four languages; the MTP layer is where they differ, and that is told."""
    graph = model("deepseek-v3")
    found = imported(SAMPLES / "miles_mxfp8", graph)
    said = decisions(found.reading)
    assert said["model.layers.0.self_attn.o_proj"] == "None"
    assert said["model.layers.1.self_attn.o_proj"] == "mxfp8, backward high_precision"
    assert said["model.layers.55.mlp.experts.0.up_proj"] == "None"
    assert said["model.layers.30.self_attn.kv_b_proj"] == "None"
    assert said["model.layers.30.mlp.shared_experts.up_proj"] == "None"
    assert "train: tp=4 ep=4 etp=1" in found.text
    assert "rollout: tp=2" in found.text
    assert "kv_cache: bf16" in found.text
    lines = messages(found)
    assert [line[:4] for line in lines] == ["P905", "P905", "P903"]
    assert "model.layers.61.eh_proj" in lines[0]
    assert "the live export leaves as it is what the converter quantizes" in lines[1]
    assert "model.layers.61.mlp.experts" in lines[1]
    assert "linear_k_up_proj" in lines[2]


def test_the_nvfp4_recipe_for_experts_is_the_ready_policy(tmp_path: Path) -> None:
    """Per token on both sides, with the recipes inline as Miles' launcher writes them."""
    served = f"{TRAIN} {NVFP4} {inline(EXPERTS)} --sglang-kv-cache-dtype bf16"
    path = script(tmp_path, PER_TOKEN, TO_NVFP4, served)
    graph = model("qwen3-30b-a3b")
    found = imported(path, graph)
    policy = SourceFile("ready.prec", "@routed_experts: nvfp4 per_token, backward high_precision\n")
    one, other = (
        compile_policy(source, graph, []).binding for source in (policy, SourceFile("imported.prec", found.text))
    )
    assert one is not None
    assert other is not None
    assert one.contract.digest == other.contract.digest
    assert messages(found) == []


def test_layer_counts_have_other_defaults_in_the_converter(tmp_path: Path) -> None:
    """With the flag and no counts Megatron keeps a layer at each end in BF16, the converter none."""
    path = script(tmp_path, TO_MXFP8, f"{TRAIN} {MXFP8} --first-last-layers-bf16")
    found = imported(path, model("qwen3-30b-a3b"))
    said = decisions(found.reading)
    assert said["model.layers.0.self_attn.o_proj"] == "mxfp8, train bf16"
    assert said["model.layers.1.self_attn.o_proj"] == "mxfp8, backward native"
    assert any("the live export leaves as it is" in line for line in messages(found))


def test_counts_that_the_trainer_lacks_are_told(tmp_path: Path) -> None:
    """Stored in BF16, trained in MXFP8: no word for it, so the policy follows what is stored."""
    path = script(tmp_path, f"{TO_MXFP8} --num-layers-at-end-in-bf16 2", f"{TRAIN} {MXFP8}")
    found = imported(path, model("qwen3-30b-a3b"))
    assert decisions(found.reading)["model.layers.47.self_attn.o_proj"] == "None"
    assert any("trained in mxfp8, backward native, stored in BF16" in line for line in messages(found))


def test_a_name_in_one_language_alone_is_told(tmp_path: Path) -> None:
    """`--extra-high-precision-layers-hf` is the converter's; the run reads Megatron's names."""
    path = script(tmp_path, f"{TO_MXFP8} --extra-high-precision-layers-hf .kv_b_proj.", f"{TRAIN} {MXFP8}")
    said = messages(imported(path, model("deepseek-v3")))
    assert any("kv_b_proj" in line and "trained in mxfp8" in line for line in said)
    assert any("the live export quantizes what the converter leaves" in line and "kv_b_proj" in line for line in said)


def test_a_name_that_the_converter_never_sees_is_dead(tmp_path: Path) -> None:
    """A typing error in a part of a name leaves nothing out."""
    path = script(tmp_path, f"{TO_MXFP8} --extra-high-precision-layers-hf .kv_bproj. layernorm", f"{TRAIN} {MXFP8}")
    said = [line for line in messages(imported(path, model("deepseek-v3"))) if line.startswith("P903")]
    assert len(said) == 2
    assert ".kv_bproj." in said[0]
    assert "layernorm" in said[1]


def test_without_a_converter_what_is_trained_is_served(tmp_path: Path) -> None:
    """The policy says that it was read so; FP32 scales need a Hopper GPU on both sides."""
    line = f"{TRAIN} --fp8-format e4m3 --fp8-recipe blockwise --rollout-num-gpus-per-engine 8"
    path = script(tmp_path, "export NVTE_FP8_BLOCK_SCALING_FP32_SCALES=1", line)
    text = imported(path, model("qwen3-30b-a3b")).text
    assert "default: fp8_block scales fp32\ntrain: gpu=h200\nrollout: gpu=h200\n" in text
    assert "Read without a converter's command" in text


def test_bf16_training_of_a_quantized_checkpoint_is_served_only(tmp_path: Path) -> None:
    """And an NVFP4 checkpoint declares an FP8 cache, which a server that is told none takes."""
    path = script(tmp_path, TO_NVFP4, f"{TRAIN} --rollout-num-gpus 4")
    lines = rules(path, model("qwen3-30b-a3b"))
    assert lines[0].startswith("default:")
    assert lines[1] == "kv_cache: fp8"
    assert counts(reading(path, model("qwen3-30b-a3b"))) == {
        "nvfp4 per_tensor, train bf16": 48 * 128 * 3,
        "None": 18867 - 48 * 128 * 3,
    }


def test_fake_int4_training_has_its_group(tmp_path: Path) -> None:
    """The flag rounds the weights of all grouped experts, in groups of 128 unless told."""
    graph = model("qwen3-30b-a3b")
    path = script(tmp_path, "export OPEN_TRAINING_INT4_FAKE_QAT_FLAG=1", f"{TRAIN} --sglang-tp-size 2")
    assert counts(reading(path, graph))["weight int4 group 128, train fake_quant"] == 48 * 128 * 3
    path = script(tmp_path, "export OPEN_TRAINING_INT4_FAKE_QAT_FLAG=1 OPEN_TRAINING_INT4_GROUP_SIZE=48", TRAIN)
    with pytest.raises(Unimportable, match="GROUP_SIZE=48"):
        reading(path, graph)


@pytest.mark.parametrize(
    "commands, code, words",
    [
        ((TO_MXFP8.replace("mxfp8", "hf_int4"), TRAIN), "P902", "not modelled"),
        (("python tools/convert_hf_to_fp8.py --strategy channel", TRAIN), "P902", "--strategy channel"),
        ((f"{TO_MXFP8} --num-layers-at-end-in-bf16 $N", TRAIN), "P901", "no count"),
        ((f"{TRAIN} --te-precision-config-file $CONFIG",), "P901", "not here"),
        ((f"{TRAIN} --sglang-kv-cache-dtype fp4_e2m1",), "P902", "fp4_e2m1"),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, commands: tuple[str, ...], code: str, words: str) -> None:
    """With a code that says whether it could be read at all."""
    path = script(tmp_path, *commands)
    with pytest.raises(Unimportable, match=words) as caught:
        reading(path, model("qwen3-30b-a3b"))
    assert caught.value.findings[0].code == code


def test_a_launcher_in_python_is_not_guessed_at(tmp_path: Path) -> None:
    """Which of its branches it takes is known when it runs."""
    path = written(tmp_path, "run_model.py", f'if train_mxfp8:\n    misc += "--sglang-tp-size 2 {MXFP8} "\n')
    with pytest.raises(Unimportable, match="in Python"):
        reading(path, model("qwen3-30b-a3b"))
