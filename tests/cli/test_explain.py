"""`precc explain`: one tensor, its rule, and every rule that lost."""

from __future__ import annotations

import pytest
from cli.commands import Run, Write

QWEN, DEEPSEEK = "qwen3-30b-a3b", "deepseek-v3"
EXPERT = "model.layers.3.mlp.experts.5.gate_proj"
TEXT = "default: mxfp8\nexperts.*: nvfp4 per_token\nlayers[-8:]: bf16\nexperts.*: backward dequantized\n"


def test_json_has_the_documented_shape(run: Run, policy: Write) -> None:
    """Key by key; the tensor is the one asked for, not its range."""
    shown = run("explain", policy(TEXT), "--model", QWEN, EXPERT, "--output-format", "json").json
    keys = "tensor shape role layer decision rule clauses beaten names outside fused_with shares_scale_with"
    assert list(shown) == keys.split()
    assert shown["tensor"] == f"{EXPERT}.weight"
    assert (shown["shape"], shown["role"], shown["layer"]) == ([768, 2048], "routed_experts", 3)
    assert shown["decision"]["weight"]["format"] == "nvfp4"
    assert shown["decision"]["input"]["scope"] == "per_token"
    assert shown["decision"]["backward"] == "dequantized"
    assert shown["rule"] == {"file": "policy.prec", "line": 2, "text": "experts.*: nvfp4 per_token"}
    assert shown["clauses"]["weight"] == {"file": "policy.prec", "line": 2}
    assert shown["clauses"]["backward"] == {"file": "policy.prec", "line": 4}
    assert shown["beaten"] == [{"file": "policy.prec", "line": 1, "text": "default: mxfp8"}]
    assert shown["names"]["huggingface"] == f"{EXPERT}.weight"
    up = EXPERT.replace("gate", "up") + ".weight"
    assert up in shown["fused_with"]
    assert shown["shares_scale_with"] == [up]


def test_the_engines_names_are_shown(run: Run) -> None:
    """What the trainer and the server call the same tensor."""
    names = run("explain", "nvfp4_rl", "--model", QWEN, EXPERT, "--output-format", "json").json["names"]
    assert {"huggingface", "megatron", "sglang"} <= names.keys()
    assert "decoder.layers.3" in names["megatron"]
    assert "layers.3" in names["sglang"]


@pytest.mark.parametrize(
    "model, tensor, held",
    [
        (QWEN, "model.layers.0.mlp.gate", "decoder.layers.0.mlp.router.weight"),
        (QWEN, "lm_head", "output_layer.weight"),
        (DEEPSEEK, "model.layers.3.mlp.gate.e_score_correction_bias", "decoder.layers.3.mlp.router.expert_bias"),
        ("gpt-oss-20b", "model.layers.2.mlp.router.bias", "decoder.layers.2.mlp.router.bias"),
        (
            "gpt-oss-20b",
            "model.layers.2.self_attn.sinks",
            "decoder.layers.2.self_attention.core_attention.softmax_offset",
        ),
    ],
)
def test_what_no_recipe_matches_is_named_as_a_parameter(run: Run, model: str, tensor: str, held: str) -> None:
    """It has no module that a recipe could name, and says so; what has one says nothing of it."""
    shown = run("explain", "bf16", "--model", model, tensor, "--output-format", "json").json
    assert shown["names"]["megatron"] is None
    assert shown["outside"]["megatron"] == {"name": held, "why": "a parameter that no recipe matches"}
    text = run("explain", "bf16", "--model", model, tensor).out
    assert f"{held} (a parameter that no recipe matches)\n" in text


def test_a_draft_class_that_calls_its_layer_the_first_is_named_so(run: Run) -> None:
    """Of Qwen3-Next: no list tells that layer from the decoder's own, and what is beside it has no config."""
    shown = run(
        "explain", "bf16", "-m", "qwen3-next-80b-a3b", "mtp.layers.0.self_attn.q_proj", "--output-format", "json"
    )
    assert shown.json["names"]["sglang"] is None
    assert shown.json["outside"]["sglang"] == {
        "name": "model.layers.0.self_attn.qkv_proj",
        "why": "in the draft model, by the name of the decoder's layer 0",
    }
    beside = run("explain", "bf16", "-m", "qwen3-next-80b-a3b", "mtp.fc").out
    assert " fc (in the draft model, built without a config)\n" in beside


def test_the_name_may_end_in_weight_or_not(run: Run, policy: Write) -> None:
    """Both are what people copy."""
    name = policy(TEXT)
    assert run("explain", name, "--model", QWEN, EXPERT) == run("explain", name, "--model", QWEN, f"{EXPERT}.weight")


def test_text_shows_the_winner_and_every_rule_it_beat_last_first(run: Run, policy: Write) -> None:
    """In the last layers BF16 wins over three."""
    result = run("explain", policy(TEXT), "--model", QWEN, EXPERT.replace(".3.", ".47."))
    assert result.status == 0
    head, decision, rule, *others = [" ".join(line.split()) for line in result.out.splitlines()]
    assert head == "model.layers.47.mlp.experts.5.gate_proj.weight [768, 2048] routed_experts, layer 47"
    assert decision == "decision bf16"
    assert rule == "rule policy.prec:3: layers[-8:]: bf16"
    at = next(number for number, line in enumerate(others) if line.startswith("beaten "))
    beaten = " ".join(others[at : at + 3])
    assert beaten.index("policy.prec:2:") < beaten.index("policy.prec:1:")


def test_a_protected_tensor_says_why_no_rule_reached_it(run: Run, policy: Write) -> None:
    """A router stays as it is stored although the default is MXFP8."""
    shown = run("explain", policy(TEXT), "-m", QWEN, "model.layers.0.mlp.gate", "--output-format", "json").json
    assert shown["rule"] == {"file": None, "line": None, "text": "protected: router"}
    assert shown["decision"]["weight"]["format"] == "bf16"


def test_an_unknown_tensor_is_a_usage_error_with_the_nearest_names(run: Run, policy: Write) -> None:
    """A misspelt component, a number out of range, and nothing like it."""
    name = policy(TEXT)
    misspelt = run("explain", name, "--model", QWEN, "model.layers.3.mlp.experts.5.gateproj")
    assert (misspelt.status, misspelt.out) == (2, "")
    assert f"`{EXPERT}`" in misspelt.err
    outside = run("explain", name, "--model", QWEN, EXPERT.replace(".5.", ".128."))
    assert outside.status == 2
    assert "layers 0 to 47 and experts 0 to 127" in outside.err
    nothing = run("explain", name, "--model", QWEN, "zzz")
    assert nothing.status == 2
    assert "names are those of the checkpoint, such as `model." in nothing.err


def test_a_policy_with_errors_explains_nothing(run: Run, policy: Write) -> None:
    """The errors are shown instead."""
    result = run("explain", policy("default: mxfp9\n"), "--model", QWEN, EXPERT)
    assert (result.status, result.out) == (1, "")
    assert "error[P002]" in result.err
