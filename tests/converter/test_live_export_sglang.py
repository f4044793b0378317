"""The worked example: after two steps, SGLang's real model holds the exported bytes in every parameter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rollout.support import SMALL

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "live-export"
SCRIPT = Path(__file__).with_name("live_sglang.py")

pytestmark = pytest.mark.slow

LATENT = {**SMALL["deepseek_v3"], "num_nextn_predict_layers": 0}
LATENT_POLICY = (
    "targets: sglang, converter\n"
    "default: mxfp8\n@routed_experts: nvfp4 per_token\nkv_b_proj: bf16\n@shared_experts, layers[0]: bf16\n"
)


def updated(folder: Path, config: str, policy: str, manner: str = "batches") -> dict[str, Any]:
    """What the script says, run in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, str(SCRIPT), config, policy, str(folder), manner]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_parameter_of_the_example_has_the_exported_bytes(tmp_path: Path) -> None:
    """Those of the second step, as SGLang's loader reads them from what the converter writes."""
    policy = (EXAMPLE / "policy.prec").read_text()
    found = updated(tmp_path, (EXAMPLE / "config.json").read_text(), policy)
    assert found == {"parameters": found["parameters"], "unwritten": [], "different": [], "unlike": [], "lines": 2}
    assert found["parameters"] > 20


def test_latent_attention_arrives_whole_from_buckets_of_one(tmp_path: Path) -> None:
    """Query and key-value down-projections come in different buckets, and SGLang gets them in one call."""
    found = updated(tmp_path, json.dumps(LATENT), LATENT_POLICY)
    assert found == {"parameters": found["parameters"], "unwritten": [], "different": [], "unlike": [], "lines": 2}


def test_a_call_for_each_tensor_would_lose_some(tmp_path: Path) -> None:
    """Why batches end with a group: the loader says nothing and leaves the fused projection as it was."""
    found = updated(tmp_path, json.dumps(LATENT), LATENT_POLICY, "one by one")
    lost = {name.split(".self_attn.")[1] for name in found["unwritten"]}
    assert lost == {"fused_qkv_a_proj_with_mqa.weight", "fused_qkv_a_proj_with_mqa.weight_scale_inv"}
    assert set(found["unwritten"]) == set(found["different"])


def test_the_example_runs_as_its_page_says(tmp_path: Path) -> None:
    """Both steps, with the evidence of what was exported."""
    out = tmp_path / "out"
    compiled = ["-m", "precc", "compile", "policy.prec", "--model", "config.json", "-o", str(out)]
    for arguments in (compiled, ["run.py", str(out)]):
        done = subprocess.run([sys.executable, *arguments], cwd=EXAMPLE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("received as sent: True") == 2
    shown = [line.split(" version ")[1] for line in done.stdout.splitlines() if " version " in line]
    lines = [json.loads(line) for line in (out / "evidence.jsonl").read_text().splitlines()]
    assert [line["weight_version"] for line in lines] == shown
    page = (EXAMPLE / "README.md").read_text()
    assert [line for line in done.stdout.splitlines() if line not in page] == []
