"""`precc_te.attest` in a live process: real models of Megatron's classes, right ones and wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from te.engines import MEGATRONS, Judges, ask, job_of
from te.live import attest
from te.support import MXFP8, TWO_LINES, compiled, emitted

import precc_te
from precc.backend import Attestation, NotAttested
from precc.contract import Contract
from precc_te.environment import NO_HADAMARD, ROW_SCALED
from precc_te.upstream.wire import Layout

NOTHING: Mapping[str, Any] = {}


class Run:
    """A job that is started with the artifacts of one contract, and attested with it or with another."""

    def __init__(self, judges: Judges, folder: Path, model: str) -> None:
        self._judges = judges
        self._folder = folder
        self.model = model
        self.contract = compiled(TWO_LINES, model)
        self.artifacts = emitted(self.contract)
        self.environment: dict[str, str] = {}
        self.layout = Layout()
        self.megatron_core = "0.16.1"

    def attested(
        self,
        contract: Contract | None = None,
        changes: Mapping[str, Any] = NOTHING,
        late: Mapping[str, str] = NOTHING,
        arguments: Mapping[str, Any] | None = None,
        wrapped: bool = False,
    ) -> Attestation:
        """The record of the last rank."""
        job = job_of(self.contract, self.artifacts, self._folder, self.layout)
        job.environment.update(self.environment)  # type: ignore[attr-defined]
        worker = self._judges(self.megatron_core).worker
        more = {"changes": changes, "late": late, "arguments": arguments, "wrapped": wrapped}
        found: Attestation = ask(worker, attest, job, contract=contract or self.contract, **more)
        return found


@pytest.fixture
def run(judges: Judges, tmp_path: Path, small: dict[str, str]) -> Callable[[str], Run]:
    """A job of one of the small models."""
    return lambda model: Run(judges, tmp_path, small[model])


def differences(found: Attestation) -> list[str]:
    """What an attestation found, in order."""
    return [finding.message for finding in found.findings]


@pytest.mark.parametrize("megatron_core", MEGATRONS)
@pytest.mark.parametrize("model", ["dense", "sparse", "latent"])
def test_a_model_that_runs_what_was_compiled_is_attested(
    model: str, megatron_core: str, run: Callable[[str], Run]
) -> None:
    """The record names the contract, the engines, and how many linear layers were compared."""
    job = run(model)
    job.megatron_core = megatron_core
    found = job.attested()
    assert differences(found) == []
    assert found.digest == job.contract.digest
    assert found.engines == {"megatron_core": megatron_core, "te": "2.20.2"}
    assert found.modules == {"dense": 48, "sparse": 48, "latent": 12 * 5 + 2 + 11 * 4 + 1 + 5 + 4}[model]
    assert json.loads(json.dumps(found.to_json()))["differences"] == []


def test_each_rank_attests_its_own_layers_through_its_wrappers(run: Callable[[str], Run]) -> None:
    """The second of two stages, as a list of two virtual chunks in DDP and Float16Module."""
    job = run("latent")
    job.layout = Layout(pp=2, vpp=2)
    found = job.attested(wrapped=True)
    assert differences(found) == []
    assert found.modules == 2 * 3 * 9 + 1 + 5 + 4


def test_a_wrong_recipe_file_is_told(run: Callable[[str], Run]) -> None:
    """The experts' matcher is gone: they run in BF16. The message names a module, what runs and what should."""
    job = run("sparse")
    lines = job.artifacts["te/te_precision.yaml"].splitlines(keepends=True)
    job.artifacts["te/te_precision.yaml"] = "".join(line for line in lines if "routed_experts_fc1" not in line)
    (message,) = differences(job.attested())
    assert message.startswith("`decoder.layers.0.mlp.experts.linear_fc1` (and 11 more layers) runs as bf16;")
    assert "the contract says nvfp4, per token, backward high_precision for" in message
    assert "mlp.experts.{0..1}.{gate,up}_proj` (48 tensors)" in message


def test_an_evaluation_recipe_is_told(run: Callable[[str], Run]) -> None:
    """What computes log-probabilities in evaluation would run otherwise than training."""
    job = run("sparse")
    recipes = job.artifacts["te/te_precision.yaml"]
    job.artifacts["te/te_precision.yaml"] = recipes.replace('"nvfp4"}}', '"nvfp4"}, evaluation_recipe: {}}')
    messages = differences(job.attested())
    assert all("runs as bf16 in evaluation; the contract says nvfp4, per token" in message for message in messages)


def test_a_missing_format_is_told(run: Callable[[str], Run]) -> None:
    """Without `--fp4-format` no recipe is in force at all."""
    job = run("sparse")
    arguments = job.artifacts["te/megatron.args"]
    job.artifacts["te/megatron.args"] = arguments.replace("--fp4-format e2m1\n", "")
    first, second, third = differences(job.attested())
    assert first.startswith("`decoder.layers.0.mlp.experts.linear_fc1` (and 11 more layers) runs as bf16;")
    assert second.startswith("`decoder.layers.0.mlp.experts.linear_fc2` (and 11 more layers) runs as bf16;")
    assert third == "the engine-wide mode is bf16, and the contract's nvfp4"


def test_a_variable_of_another_run_is_told(run: Callable[[str], Run]) -> None:
    """The recipe classes took it at import; the finding says which variable it was."""
    job = run("sparse")
    job.environment = {ROW_SCALED: "0", NO_HADAMARD: "0"}
    *layers, recipe = differences(job.attested())
    assert all("runs as nvfp4, per tensor, Hadamard, backward high_precision;" in layer for layer in layers)
    assert f"{NO_HADAMARD} is 0, not 1 and {ROW_SCALED} is 0, not 1" in recipe


def test_a_variable_that_was_set_too_late_is_told(run: Callable[[str], Run]) -> None:
    """What the environment says now is not what the recipe classes took when they were imported."""
    job = run("sparse")
    job.environment = {ROW_SCALED: "0"}
    *_, recipe = differences(job.attested(late={ROW_SCALED: "1"}))
    assert recipe.endswith("the variables are right now, and were not when it was imported")


def test_what_no_recipe_shows_is_told(run: Callable[[str], Run]) -> None:
    """FP8 attention of another run, and approximate reciprocals."""
    job = run("sparse")
    late = {"NVTE_DPA_FP8_RECIPE": "DelayedScaling", "NVTE_USE_FAST_MATH": "1"}
    messages = differences(job.attested(late=late))
    assert "NVTE_DPA_FP8_RECIPE is DelayedScaling; the contract needs it unset" in messages
    assert any(message.startswith("NVTE_USE_FAST_MATH is 1:") for message in messages)
    assert any("runs as nvfp4, per token, fast math" in message for message in messages)


@pytest.mark.parametrize("arguments", [{"fp8_param_gather": True}, {"overlap_moe_expert_parallel_comm": True}])
def test_a_forbidden_argument_is_told(arguments: dict[str, bool], run: Callable[[str], Run]) -> None:
    """Those of the namespace that Megatron was started with."""
    found = run("sparse").attested(arguments=arguments)
    assert [finding.code for finding in found.findings] == ["P702"]
    argument = "--" + next(iter(arguments)).replace("_", "-")
    assert found.findings[0].message.startswith(f"under {argument} Megatron does not run this contract: ")


def test_a_forbidden_argument_is_told_by_the_models_configuration(run: Callable[[str], Run]) -> None:
    """Where there is no namespace, the configuration of the built model has it."""
    job = run("dense")
    job.contract = compiled(MXFP8, job.model)
    job.artifacts = emitted(job.contract)
    found = job.attested(changes={"fp8_param": True})
    assert [finding.code for finding in found.findings] == ["P702"]


def test_another_models_contract_is_told(run: Callable[[str], Run]) -> None:
    """Its depth, its width and its layers are others."""
    job = run("sparse")
    messages = differences(job.attested(contract=compiled(TWO_LINES, "deepseek-v2-lite")))
    assert messages[0] == "the model has 12 decoder layers, and the contract's, deepseek-v2-lite, 27"
    assert any("`decoder.layers.0.self_attention.linear_qkv` runs as bf16; the contract has no" in m for m in messages)
    assert any(message.startswith("the model has no linear layer for `model.layers.") for message in messages)


def test_a_refusal_has_every_difference() -> None:
    """The exception says the first and how many more; the attestation has all of them."""
    from precc.diagnostics import error

    found = Attestation("te", "0123456789abcdef", {}, 2, (error("P511", "one"), error("P511", "two")))
    assert str(NotAttested(found)) == "te does not run contract 0123456789ab: one (and 1 more differences)"


def test_what_is_no_model_is_an_error() -> None:
    """The caller passed something else; nothing is recorded of it."""
    with pytest.raises(TypeError, match="a dict is no GPTModel of Megatron-Core"):
        precc_te.attest({}, compiled(TWO_LINES, "qwen3-0.6b"))


def test_importing_it_loads_no_torch() -> None:
    """A launcher can import the backend where there is no engine."""
    code = "import sys, precc_te; precc_te.attest; print(sorted({'torch', 'megatron', 'yaml'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
