"""`precc_sglang.attest` in a live process: the right model passes, and each difference raises with what runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rollout.support import CONFIG, ENVIRONMENT, MIXED, SERVER, SMALL, TWO_LINES, bound, emitted, small_model

from precc.contract.serial import contract_to_json
from precc_sglang.environment import VARIABLES

pytestmark = pytest.mark.slow

PER_TOKEN = "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION"


def case(folder: Path, name: str, model: str = "qwen3_moe", policy: str = MIXED, **changes: Any) -> None:
    """One case's folder; `changes` are to the variables, to words of `server.yaml`, or the model that is served."""
    here = folder / name
    here.mkdir()
    contract = bound(policy, small_model(model, here))
    artifacts = emitted(contract)
    quantization = json.loads(artifacts[CONFIG])
    served = dict(SMALL[changes.get("served", model)])
    (here / "config.json").write_text(json.dumps({**served, "quantization_config": quantization}))
    old, new = changes.get("arguments", ("", ""))
    (here / "server.yaml").write_text(artifacts[SERVER].replace(old, new))
    (here / "contract.json").write_text(json.dumps(contract_to_json(contract)))
    variables = {**json.loads(artifacts[ENVIRONMENT])["set"], **changes.get("variables", {})}
    (here / "variables.json").write_text(json.dumps(variables))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, dict[str, Any]]:
    """What each case answered."""
    folder = tmp_path_factory.mktemp("live")
    case(folder, "right")
    case(folder, "draft", "deepseek_v3", TWO_LINES)
    case(folder, "configuration")
    case(folder, "arguments")
    case(folder, "method")
    case(folder, "cache", arguments=("kv-cache-dtype: bf16", "kv-cache-dtype: fp8_e4m3"))
    case(folder, "variable", variables={PER_TOKEN: "0"})
    case(folder, "stale", variables={"FLASHINFER_NVFP4_4OVER6": "1"})
    case(folder, "another", "qwen3_moe", TWO_LINES, served="qwen3")
    case(folder, "argument", arguments=("flashinfer_trtllm_routed", "triton"))
    here = Path(__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "rollout.live_server", str(folder)]
    run = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    found: dict[str, dict[str, Any]] = {}
    for line in run.stdout.splitlines():
        found |= json.loads(line)
    return found


def differences(answers: Mapping[str, dict[str, Any]], name: str) -> list[str]:
    """The sentences of one case, which raised."""
    found: list[str] = answers[name]["differences"]
    assert found
    assert found[0] in answers[name]["raised"]
    return found


@pytest.mark.parametrize("name, least", [("right", 4 * 3), ("draft", 4), ("configuration", 4 * 3), ("arguments", 5)])
def test_what_was_compiled_passes_with_a_record(answers: Mapping[str, dict[str, Any]], name: str, least: int) -> None:
    """A loaded model, its draft model, a model's configuration, and the server's arguments."""
    record = answers[name]
    assert record["differences"] == []
    assert record["target"] == "sglang"
    assert record["engines"]["sglang"]
    assert len(record["contract"]) == 64
    assert record["modules"] >= least


def test_a_module_in_another_method_is_named(answers: Mapping[str, dict[str, Any]]) -> None:
    """What runs, and what should."""
    (difference,) = [one for one in differences(answers, "method") if "would run" in one]
    assert "`model.layers.1.self_attn.o_proj` as unquantized" in difference
    assert "the contract says mxfp8" in difference


def test_another_kv_cache_is_named(answers: Mapping[str, dict[str, Any]]) -> None:
    """With the projections that fill it."""
    found = differences(answers, "cache")
    assert all("as fp8 KV cache; the contract says bf16 KV cache" in one for one in found)
    assert "self_attn.{k,v}_proj" in found[0]


def test_a_missing_per_token_variable_is_named(answers: Mapping[str, dict[str, Any]]) -> None:
    """And the experts that it scales statically."""
    found = differences(answers, "variable")
    assert f"with {PER_TOKEN}=0; the contract says {PER_TOKEN}=1" in found[0]
    assert "mlp.experts" in found[1]
    assert "as nvfp4_static, inputs static" in found[1]


def test_a_stale_variable_is_named(answers: Mapping[str, dict[str, Any]]) -> None:
    """Four-over-six changes every block scale."""
    found = differences(answers, "stale")
    assert "with FLASHINFER_NVFP4_4OVER6=1; the contract says unset FLASHINFER_NVFP4_4OVER6" in found[0]


def test_another_model_is_named(answers: Mapping[str, dict[str, Any]]) -> None:
    """Modules that are not there."""
    assert any("there is no `model.layers.0.mlp.experts`" in one for one in differences(answers, "another"))


def test_another_argument_is_named(answers: Mapping[str, dict[str, Any]]) -> None:
    """What the server was started with."""
    found = differences(answers, "argument")
    assert found == ["SGLang 0.5.23 runs with moe-runner-backend triton; the contract says flashinfer_trtllm_routed"]


def test_importing_the_package_loads_no_torch() -> None:
    """`import precc_sglang` is what every compile does."""
    code = "import sys, precc_sglang; precc_sglang.attest; print('torch' in sys.modules or 'sglang' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
