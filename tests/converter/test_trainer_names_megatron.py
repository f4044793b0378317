"""Names, shapes and layer numbers of the trainer, as Megatron-Core itself has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from converter.models import CONFIGS, model

from precc_converter.trainer import Spelling, TrainerNames, first_layer

PARAMETERS = Path(__file__).with_name("megatron_parameters.py")
DELTA_NET_PROGRAM = Path(__file__).with_name("megatron_delta_net.py")
FORWARD_PROGRAM = Path(__file__).with_name("megatron_forward.py")


def run(program: Path, requests: object) -> Any:
    """What Megatron-Core answers, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(program.parents[1])}
    command = [sys.executable, str(program), json.dumps(requests)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


DENSE_THEN_ROUTED: dict[str, Any] = {
    "hidden_size": 128,
    "num_layers": 2,
    "num_attention_heads": 4,
    "ffn_hidden_size": 256,
    "add_bias_linear": False,
    "qk_layernorm": True,
    "num_moe_experts": 4,
    "moe_ffn_hidden_size": 128,
    "moe_layer_freq": [0, 1],
    "moe_router_topk": 2,
    "moe_grouped_gemm": True,
}
LATENT: dict[str, Any] = {
    "multi_latent_attention": True,
    "q_lora_rank": 64,
    "kv_lora_rank": 128,
    "qk_head_dim": 32,
    "qk_pos_emb_head_dim": 32,
    "v_head_dim": 32,
    "moe_shared_expert_intermediate_size": 128,
    "moe_router_enable_expert_bias": True,
    "moe_router_score_function": "sigmoid",
    "mtp_num_layers": 1,
}
GROUPED: dict[str, Any] = {"num_query_groups": 2, "kv_channels": 32}
MODELS: dict[str, tuple[str, dict[str, Any], Spelling]] = {
    "routed": ("qwen3_moe", {**DENSE_THEN_ROUTED, **GROUPED}, Spelling()),
    "sequential experts": (
        "qwen3_moe",
        {**DENSE_THEN_ROUTED, **GROUPED, "moe_grouped_gemm": False},
        Spelling(grouped=False),
    ),
    "Megatron's own layers": (
        "qwen3_moe",
        {**DENSE_THEN_ROUTED, **GROUPED, "moe_grouped_gemm": False},
        Spelling(grouped=False, fused_norms=False),
    ),
    "latent attention, shared experts, MTP": ("deepseek_v3", {**DENSE_THEN_ROUTED, **LATENT}, Spelling()),
    "biases, shared experts, MTP": (
        "glm4_moe",
        {
            **DENSE_THEN_ROUTED,
            **GROUPED,
            **{key: LATENT[key] for key in LATENT if key.startswith(("moe", "mtp"))},
            "add_qkv_bias": True,
        },
        Spelling(),
    ),
    "biases everywhere, sinks, stacked experts": (
        "gpt_oss",
        {
            **{key: DENSE_THEN_ROUTED[key] for key in DENSE_THEN_ROUTED if not key.startswith(("ffn", "qk"))},
            **GROUPED,
            "ffn_hidden_size": 256,
            "moe_ffn_hidden_size": 256,
            "moe_layer_freq": [1, 1],
            "add_bias_linear": True,
            "softmax_type": "learnable",
        },
        Spelling(),
    ),
    "gated delta nets, gated attention, a gated shared expert": (
        "qwen3_next",
        {
            **DENSE_THEN_ROUTED,
            **GROUPED,
            "moe_layer_freq": [1, 1],
            "moe_shared_expert_intermediate_size": 128,
            "moe_shared_expert_gate": True,
            "attention_output_gate": True,
            "layernorm_zero_centered_gamma": True,
            "perform_initialization": False,
            "experimental_attention_variant": "gated_delta_net",
            "linear_attention_freq": 2,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 4,
        },
        Spelling(),
    ),
}

_DENSE: dict[str, Any] = {
    key: DENSE_THEN_ROUTED[key] for key in ("hidden_size", "num_layers", "num_attention_heads", "ffn_hidden_size")
}
FORWARD: dict[str, dict[str, Any]] = {
    "llama": {**_DENSE, **GROUPED, "add_bias_linear": True},
    "qwen2": {**_DENSE, **GROUPED, "add_bias_linear": False, "add_qkv_bias": True},
    "qwen3_moe": {
        **DENSE_THEN_ROUTED,
        **GROUPED,
        "moe_grouped_gemm": False,
        "moe_token_dispatcher_type": "allgather",
        "moe_router_load_balancing_type": "none",
    },
}

LAYOUTS = [(8, 1, 1), (8, 2, 1), (8, 4, 1), (8, 2, 2), (24, 4, 3), (61, 61, 1), (12, 3, 4)]


@pytest.fixture(scope="module")
def real() -> list[Any]:
    """The parameters of each model, and the first layers of every layout."""
    models = [
        {
            "config": config,
            "vocabulary": 128,
            "tied": bool(CONFIGS[family].get("tie_word_embeddings")),
            "engine": spelling.fused_norms,
        }
        for family, config, spelling in MODELS.values()
    ]
    answers: list[Any] = run(PARAMETERS, [*models, {"stages": LAYOUTS}])
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("case", MODELS)
def test_names_and_shapes_are_those_of_megatrons_own_model(case: str, real: list[Any]) -> None:
    """A real GPTModel of Megatron-Core 0.16.1 has these parameters and no others."""
    family, _, spelling = MODELS[case]
    names = TrainerNames(model(family), spelling)
    ours = {names.written(place): list(place.parameter.shape) for place in names.places()}
    assert ours == real[list(MODELS).index(case)]


@pytest.mark.slow
def test_a_stages_first_layer_is_megatrons(real: list[Any]) -> None:
    """Of every stage and virtual chunk."""
    for (layers, stages, chunks), answered in zip(LAYOUTS, real[-1], strict=True):
        ours = [
            [first_layer(layers, stages, stage, chunks, chunk) for stage in range(stages)] for chunk in range(chunks)
        ]
        assert ours == answered


@pytest.fixture(scope="module")
def logits() -> dict[str, Any]:
    """The largest logit of each family, and how far both sides differ."""
    answers: dict[str, Any] = run(FORWARD_PROGRAM, FORWARD)
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("family", FORWARD)
def test_both_sides_compute_the_same_with_the_mapped_weights(family: str, logits: dict[str, Any]) -> None:
    """Random weights through Megatron's own forward, and through that of transformers under the checkpoint's names.

    A row of another head, or gate for up, would change every logit; both compute in FP32 and differ by rounding only.
    """
    found = logits[family]
    assert found["largest"] > 1
    assert found["difference"] < 1e-4 * found["largest"]


@pytest.fixture(scope="module")
def delta_nets() -> dict[str, Any]:
    """The largest output of a gated delta net of each family, and how far both sides differ."""
    answers: dict[str, Any] = run(DELTA_NET_PROGRAM, [])
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5"])
def test_a_gated_delta_net_computes_the_same_with_the_mapped_weights(family: str, delta_nets: dict[str, Any]) -> None:
    """Megatron's own module and that of transformers, with random weights that went through the names."""
    found = delta_nets[family]
    assert found["largest"] > 1
    assert found["difference"] < 1e-4 * found["largest"]


@pytest.mark.parametrize(
    "file, allocates",
    [
        ("layernorm_linear.py", '"layer_norm_weight",'),
        ("grouped_linear.py", 'f"weight{i}",'),
    ],
)
def test_stand_ins_name_what_transformerengine_names(file: str, allocates: str) -> None:
    """The layers whose parameters the real model's names end in, as the installed package registers them."""
    from importlib.metadata import files

    (source,) = (path for path in files("transformer-engine") or () if path.match(f"pytorch/module/{file}"))
    registered = source.read_text().split("self.register_parameter(")[1:]
    assert any(allocates in call[:80] for call in registered)
