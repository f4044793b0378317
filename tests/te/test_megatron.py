"""Megatron-Core's own code, started with what a compile writes, runs every linear layer as the contract decides.

Real GPTModels are built from its own TransformerEngine layer specs, under `env.sh` over a contrary environment, with
the emitted YAML and arguments; its own forward of decoder and MTP block reaches each layer, and TransformerEngine's
own recipe object says what is in force there. Only the layers' kernels are stand-ins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from te.engines import MEGATRONS, OLD_TE, Judges, ask, in_turn, job_of
from te.live import forward_and_walk
from te.support import POLICIES, compiled, emitted

from precc.backend import EngineUnavailable, Judgement
from precc.contract.wording import tensors_of
from precc_te.modules import modules_of
from precc_te.names import Names
from precc_te.upstream.wire import Layout

THREE_MODES = (
    "default: mxfp8\nlayers[4:6]: mxfp8, backward dequantized\n@routed_experts?: mxfp8, backward high_precision\n"
)
CASES = {**POLICIES, "three modes": THREE_MODES}


def agreed(judgement: Judgement) -> int:
    """The tensors that were judged, which all run as decided."""
    assert [finding.message for finding in judgement.findings] == []
    assert judgement.agree == judgement.tensors
    return judgement.tensors


MODELS = [*((policy, model) for policy in CASES for model in ("sparse", "latent")),
          *(("three modes", model) for model in ("dense", "latent without query rank"))]  # fmt: skip


@pytest.mark.parametrize("case, megatron_core", in_turn(MODELS))
def test_megatron_runs_every_layer_as_decided(
    case: tuple[str, str], megatron_core: str, small: dict[str, str], judges: Judges
) -> None:
    """Every linear layer that Megatron's recipes can reach is in the contract, and runs as it says."""
    policy, model = case
    contract = compiled(CASES[policy], small[model])
    tensors = agreed(judges(megatron_core)(contract, emitted(contract)))
    lines = modules_of(contract).lines
    assert tensors == tensors_of(line.entry for line in lines if line.module is not None)


@pytest.mark.parametrize(
    "model, megatron_core",
    in_turn(
        [
            "qwen2.5-1.5b",
            "mixtral-8x7b",
            "deepseek-v2-lite",
            "deepseek-v3.2",
            "glm-4.5-air",
            "moonlight-16b-a3b",
            "minimax-m2",
            "glm-5.2",
        ]
    ),
)
def test_megatron_runs_the_catalogues_models_as_decided(model: str, megatron_core: str, judges: Judges) -> None:
    """As many layers as the model has, at all layouts in which they divide or Megatron divides them."""
    contract = compiled(POLICIES["mxfp8"], model)
    judgement = judges(megatron_core)(contract, emitted(contract))
    assert agreed(judgement) > 0
    parser = "Megatron's argument parser" if megatron_core == "0.19.2" else "TransformerConfig's own checks"
    assert judgement.checks[1].startswith(parser)
    assert judgement.engines == {"megatron_core": megatron_core, "te": "2.20.2"}


@pytest.mark.parametrize("layout, megatron_core", in_turn(["pp=2", "pp=3", "pp=4"]))
@pytest.mark.parametrize("policy", ["single layers", "mxfp8", "two lines", "mtp under fp4"])
def test_each_pipeline_stage_runs_its_own_layers_as_decided(
    policy: str, layout: str, megatron_core: str, small: dict[str, str], judges: Judges
) -> None:
    """Each stage is started through the wrapper where there is one; together they are the whole contract."""
    contract = compiled(POLICIES[policy], small["latent"], layout)
    artifacts = emitted(contract)
    assert ("te/with_stage_recipe.sh" in artifacts) == (policy == "single layers")
    judgement = judges(megatron_core)(contract, artifacts)
    assert agreed(judgement) > 0
    assert any(f"at {layout}, grouped experts" in check for check in judgement.checks)


@pytest.mark.parametrize("megatron_core", MEGATRONS)
def test_virtual_stages_run_their_own_layers_as_decided(
    megatron_core: str, small: dict[str, str], judges: Judges
) -> None:
    """The first and last layers are counted over all chunks."""
    contract = compiled(POLICIES["mxfp8"], small["latent"], "pp=2 vpp=3")
    judgement = judges(megatron_core)(contract, emitted(contract))
    assert agreed(judgement) > 0
    assert any("at pp=2 vpp=3, sequential experts" in check for check in judgement.checks)


@pytest.mark.parametrize("policy", ["two lines", "pretraining", "four over six", "fp8 blocks", "mixed"])
def test_an_older_transformer_engine_runs_them_as_well(policy: str, small: dict[str, str], judges: Judges) -> None:
    """2.17 has neither 2-D MXFP8 nor factories; its recipe classes read the same variables."""
    contract = compiled(POLICIES[policy], small["sparse"], "te=2.17")
    if policy == "four over six":  # its `dequantized` backward is refused there
        contract = compiled(POLICIES[policy].replace("dequantized", "high_precision"), small["sparse"], "te=2.17")
    judgement = judges(te=OLD_TE)(contract, emitted(contract))
    assert agreed(judgement) > 0
    assert judgement.engines["te"] == OLD_TE


def test_an_older_transformer_engine_is_not_asked_what_it_cannot_know(small: dict[str, str], judges: Judges) -> None:
    """Factories came with 2.19: the installed 2.17 is no judge of them, and a compile for it is refused."""
    contract = compiled(THREE_MODES, small["sparse"])
    with pytest.raises(EngineUnavailable) as unavailable:
        judges(te=OLD_TE)(contract, emitted(contract))
    assert "2.17.0 is installed" in str(unavailable.value)
    assert "--train te=2.17" in unavailable.value.help


@pytest.mark.parametrize("layout", [Layout(), Layout(grouped=False), Layout(pp=2, vpp=2)], ids=str)
@pytest.mark.parametrize("policy, megatron_core", in_turn(["mxfp8", "mtp under fp4", "two backward modes", "bf16"]))
def test_a_walk_knows_what_the_forward_has_in_force(
    policy: str, layout: Layout, megatron_core: str, small: dict[str, str], judges: Judges, tmp_path: Path
) -> None:
    """What `attest` records without a forward is what Megatron's forward of decoder and MTP enters."""
    contract = compiled(POLICIES[policy], small["latent"])
    job = job_of(contract, emitted(contract), tmp_path, layout)
    found: dict[str, Any] = ask(judges(megatron_core).worker, forward_and_walk, job)
    assert len({path for path in found if path.startswith("mtp.")}) >= 9
    assert [path for path, (seen, walked) in found.items() if seen != walked] == []


def test_a_walk_knows_what_evaluation_has_in_force(small: dict[str, str], judges: Judges, tmp_path: Path) -> None:
    """A config with an evaluation recipe of its own, which no compile writes, runs otherwise out of training."""
    contract = compiled("default: mxfp8\n", small["sparse"])
    artifacts = emitted(contract)
    recipes = artifacts["te/te_precision.yaml"]
    artifacts["te/te_precision.yaml"] = recipes.replace('"e4m3"}}', '"e4m3"}, evaluation_recipe: {}}')
    job = job_of(contract, artifacts, tmp_path, Layout())
    answers = [ask(judges().worker, forward_and_walk, job, training=training) for training in (True, False)]
    assert [{str(seen) for seen, _ in found.values()} for found in answers] == [{"mxfp8, backward native"}, {"bf16"}]
    assert all(seen == walked for found in answers for seen, walked in found.values())


def test_what_megatron_cannot_reach_is_unaddressed(small: dict[str, str]) -> None:
    """No tensor outside the reachable layers is given a precision."""
    contract = compiled(POLICIES["mxfp8"], small["latent"])
    names = Names(contract.model)
    outside = {tensor.part for tensor in contract.tensors if names.module(tensor) is None}
    assert outside == {"embed", "norm", "router", "bias", "head"}
