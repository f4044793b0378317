"""Megatron-Core's own code, started with what a compile writes, runs every linear layer as the contract decides.

A small real GPTModel is built from its own TransformerEngine layer specs, under `env.sh` over a contrary environment,
with the emitted YAML and arguments; its own forward of decoder and MTP block reaches each layer, and
TransformerEngine's own recipe object says what is in force there. Only the layers' kernels are stand-ins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from te.support import POLICIES, compiled, emitted
from te.upstream_client import Upstream

from precc.contract import Contract
from precc.formats import FourOverSix
from precc.formats.decision import Backward
from precc_te import backend, factories
from precc_te.modules import modules_of
from precc_te.names import Module, Names, paths
from precc_te.precision import TePrecision

DENSE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 256,
    "moe_intermediate_size": 128,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 256,
    "tie_word_embeddings": False,
}
LATENT = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 128,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
    "intermediate_size": 256,
    "moe_intermediate_size": 128,
    "n_routed_experts": 2,
    "n_shared_experts": 1,
    "num_experts_per_tok": 1,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "n_group": 1,
    "topk_group": 1,
    "vocab_size": 256,
    "tie_word_embeddings": False,
}
MEGATRON: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"moe_layer_freq": 1},
    "deepseek_v3": {
        "moe_layer_freq": [0] + [1] * 11,
        "moe_shared_expert_intermediate_size": 64,
        "mtp_num_layers": 1,
        "multi_latent_attention": True,
        "q_lora_rank": 32,
        "kv_lora_rank": 32,
        "qk_head_dim": 16,
        "qk_pos_emb_head_dim": 8,
        "v_head_dim": 16,
        "rope_type": "rope",
    },
}
STALE = {
    "NVTE_BACKWARD_OVERRIDE": "dequantized",
    "NVTE_NVFP4_DISABLE_RHT": "0",
    "NVTE_NVFP4_ROW_SCALED_ACTIVATION": "1",
    "NVTE_NVFP4_4OVER6": "weights",
    "NVTE_FP8_BLOCK_SCALING_FP32_SCALES": "1",
    "NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES": "1",
}
TWO_MODES = (
    "default: mxfp8\nlayers[4:6]: mxfp8, backward dequantized\n@routed_experts: mxfp8, backward high_precision\n"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The two small models' `config.json`, by family."""
    folder = tmp_path_factory.mktemp("models")
    for config in (DENSE, LATENT):
        path = folder / f"{config['model_type']}.json"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
    return {str(config["model_type"]): str(folder / f"{config['model_type']}.json") for config in (DENSE, LATENT)}


def written(contract: Contract, folder: Path) -> Path:
    """The artifacts, on disk."""
    for artifact in backend.emit(contract):
        path = folder / artifact.path
        path.parent.mkdir(exist_ok=True)
        path.write_text(artifact.text)
        path.chmod(0o755 if artifact.executable else 0o644)
    return folder / "te"


CONFIG_KEYS = {
    "--fp8-format": "fp8",
    "--fp8-recipe": "fp8_recipe",
    "--fp4-format": "fp4",
    "--fp4-recipe": "fp4_recipe",
}
COUNTS = {
    "--num-layers-at-start-in-bf16": "num_layers_at_start_in_bf16",
    "--num-layers-at-end-in-bf16": "num_layers_at_end_in_bf16",
}


def configured(folder: Path) -> dict[str, Any]:
    """`megatron.args` as fields of Megatron's configuration."""
    found: dict[str, Any] = {}
    for line in (folder / "megatron.args").read_text().splitlines():
        name, *values = line.split()
        if name in CONFIG_KEYS:
            found[CONFIG_KEYS[name]] = values[0]
        elif name in COUNTS:
            found[COUNTS[name]] = int(values[0])
        elif name == "--first-last-layers-bf16":
            found["first_last_layers_bf16"] = True
        else:
            assert name in ("--bf16", "--transformer-impl", "--te-precision-config-file")
    return found


def sourced(folder: Path) -> dict[str, str]:
    """The environment that `env.sh` makes of a contrary one."""
    command = ["bash", "-uc", 'source "$0" && env -0', str(folder / "env.sh")]
    shown = subprocess.run(command, env={**os.environ, **STALE}, capture_output=True, check=True, text=True).stdout
    return dict(line.split("=", 1) for line in shown.split("\0") if line)


def recipe_of(folder: Path, environment: dict[str, str]) -> str:
    """The YAML that a rank is started with: the wrapper's choice, where there is one."""
    wrapper = folder / "with_stage_recipe.sh"
    if not wrapper.exists():
        return str(folder / "te_precision.yaml")
    command = [str(wrapper), sys.executable, "-c", "import sys; print(sys.argv[-1])"]
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.strip()


def in_force(upstream: Upstream, folder: Path, family: str, grouped: bool, rank: int, stages: int) -> dict[str, Any]:
    """What Megatron's forward has in force for each linear layer of one rank."""
    environment = {**sourced(folder), "RANK": str(rank), "WORLD_SIZE": str(stages)}
    config = {
        "num_layers": 12,
        "num_moe_experts": 2,
        "moe_ffn_hidden_size": 64,
        "moe_grouped_gemm": grouped,
        **MEGATRON[family],
        **configured(folder),
    }
    found: dict[str, Any] = upstream.ask("model", environment, config=config, path=recipe_of(folder, environment))
    return found


def understood(seen: dict[str, Any]) -> TePrecision:
    """TransformerEngine's own recipe object in this backend's words."""
    if not seen:
        return TePrecision("bf16")
    backward: Backward = seen["backward_override"] or "native"
    if seen["class"] == "CustomRecipe":
        assert backward == "native"
        module, _, name = seen["qfactory"].rpartition(".")
        assert module == factories.MODULE
        custom = factories.factory_precision(name)
        assert custom is not None
        return custom
    if seen["class"] == "NVFP4BlockScaling":
        weight, operand = adaptive(seen)
        return TePrecision(
            "nvfp4",
            backward,
            row_scaled=seen["row_scaled_activation"],
            weight_2d=not seen["disable_2d_quantization"],
            hadamard=not seen["disable_rht"],
            stochastic_rounding=not seen["disable_stochastic_rounding"],
            weight_4over6=weight,
            input_4over6=operand,
        )
    assert seen["format"] == "E4M3"
    if seen["class"] == "Float8BlockScaling":
        return TePrecision("blockwise", backward, pow2_scales=not seen["use_f32_scales"])
    if seen["class"] == "Float8CurrentScaling":
        return TePrecision("tensorwise", backward, pow2_scales=seen["use_power_2_scales"])
    assert seen["class"] == "MXFP8BlockScaling"
    return TePrecision("mxfp8", backward)


def adaptive(seen: dict[str, Any]) -> tuple[FourOverSix | None, FourOverSix | None]:
    """The four-over-six settings of weights and inputs."""
    sides = [
        FourOverSix(seen["nvfp4_4over6_err_mode"].lower(), 256 if seen["nvfp4_4over6_e4m3_use_256"] in scopes else 448)
        if seen["nvfp4_4over6"] in scopes
        else None
        for scopes in (("weights", "all"), ("activations", "all"))
    ]
    return sides[0], sides[1]


def expected(contract: Contract, grouped: bool) -> dict[str, TePrecision]:
    """The precision of each of Megatron's paths, with global layer numbers and one entry an expert."""
    found: dict[str, TePrecision] = {}
    for module, precision in modules_of(contract).precisions.items():
        found.update(dict.fromkeys(full_paths(module, grouped), precision))
    return found


def full_paths(module: Module, grouped: bool) -> list[str]:
    """The paths of one linear layer in the grouped, or else the sequential, layout of two experts."""
    layers = range(module.layer, module.layer + 1) if module.layer is not None else range(1)
    templates = list(paths(module, layers, "transformer_layer"))
    if not module.is_experts:
        return [templates[0][0]]
    head, tail = templates[0 if grouped else 1]
    return [head] if grouped else [f"{head}{expert}{tail}" for expert in range(2)]


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3"])
@pytest.mark.parametrize("policy", [*POLICIES, "three modes"])
def test_megatron_runs_every_layer_as_decided(
    policy: str, family: str, models: dict[str, str], upstream: Upstream, tmp_path: Path
) -> None:
    """Every linear layer that Megatron's recipes can reach is in the contract, and runs as it says."""
    grouped = family == "qwen3_moe"
    contract = compiled(POLICIES.get(policy, TWO_MODES), models[family], "megatron_core=0.16.1")
    seen = in_force(upstream, written(contract, tmp_path), family, grouped, 0, 1)
    assert {path: understood(recipe) for path, recipe in seen.items()} == expected(contract, grouped)


@pytest.mark.parametrize("policy", ["single layers", "mxfp8", "two lines"])
def test_each_pipeline_stage_runs_its_own_layers_as_decided(
    policy: str, models: dict[str, str], upstream: Upstream, tmp_path: Path
) -> None:
    """Three stages, each started through the wrapper where there is one; together they are the whole contract."""
    contract = compiled(POLICIES[policy], models["qwen3_moe"], "pp=3 megatron_core=0.16.1")
    folder = written(contract, tmp_path)
    assert (folder / "with_stage_recipe.sh").exists() == (policy == "single layers")
    seen: dict[str, Any] = {}
    for rank in range(3):
        seen |= in_force(upstream, folder, "qwen3_moe", True, rank, 3)
    assert {path: understood(recipe) for path, recipe in seen.items()} == expected(contract, True)


def test_what_megatron_cannot_reach_is_unaddressed(models: dict[str, str]) -> None:
    """No tensor outside the reachable layers is given a precision."""
    contract = compiled(POLICIES["mxfp8"], models["deepseek_v3"], "megatron_core=0.16.1")
    names = Names(contract.model)
    outside = {tensor.part for tensor in contract.tensors if names.module(tensor) is None}
    assert outside == {"embed", "norm", "router", "bias", "head"}
    assert emitted(contract)["te/megatron.args"].count("--fp8-format") == 1
