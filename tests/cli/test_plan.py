"""`precc plan`: the numbers of a policy on a model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from cli.commands import Run, Write

import precc.graph

QWEN, DEEPSEEK = "qwen3-30b-a3b", "deepseek-v3"
ROW = {"tensors", "parameters", "bytes", "fraction"}


def total(rows: Iterable[dict[str, Any]], key: str) -> float:
    """The sum of a column."""
    return sum(row[key] for row in rows)


def test_json_has_the_documented_shape(run: Run) -> None:
    """Key by key, as the command line's manual gives it."""
    plan = run("plan", "nvfp4_rl", "--model", QWEN, "--output-format", "json").json
    head = ["model", "tensors", "parameters", "bytes", "bits_per_weight", "digest"]
    assert list(plan) == [*head, "stored", "formats", "roles", "rules"]
    assert plan["stored"] == {"bf16": {"tensors": 18_867, "parameters": 30_532_122_624}}
    assert all(row.keys() == ROW for row in plan["formats"].values())
    assert all(row.keys() == ROW | {"fraction_outside_mtp"} for row in plan["roles"].values())
    assert all(list(rule) == ["file", "line", "text", "matched", "won", "bytes"] for rule in plan["rules"])
    assert (plan["model"], plan["tensors"], plan["parameters"]) == (QWEN, 18_867, 30_532_122_624)


def test_the_precision_that_a_checkpoint_is_stored_in_is_told(run: Run) -> None:
    """By format, the largest first; in JSON they add up to the model."""
    plan = run("plan", "bf16", "--model", DEEPSEEK, "--output-format", "json").json
    for key in ("tensors", "parameters"):
        assert total(plan["stored"].values(), key) == plan[key]
    text = run("plan", "bf16", "--model", DEEPSEEK).out
    assert "\nstored as fp8_block (45,808 tensors), bf16 (316 tensors), fp32 (59 tensors)\n" in text
    assert "\nstored as bf16\n" in run("plan", "bf16", "--model", QWEN).out


def test_a_tied_head_that_is_not_counted_is_told(run: Run, project: Path) -> None:
    """From a configuration it is 310 tensors; the published checkpoint, in the catalogue, has 311."""
    config = json.loads((Path(precc.graph.__file__).parent / "models" / "qwen3-0.6b.json").read_text())["config"]
    (project / "config.json").write_text(json.dumps(config))
    line = "\nlm_head is tied to `model.embed_tokens` and not counted; a checkpoint may store it too\n"
    counted, stored = (run("plan", "bf16", "--model", model).out for model in ("./config.json", "qwen3-0.6b"))
    assert "\n310 tensors," in counted
    assert line in counted
    assert "\n311 tensors," in stored
    assert "tied" not in stored
    assert "tied" not in run("plan", "bf16", "--model", QWEN).out


def test_formats_and_roles_each_add_up_to_the_model(run: Run) -> None:
    """No tensor is counted twice or left out."""
    plan = run("plan", "mxfp8_e2e", "--model", DEEPSEEK, "--output-format", "json").json
    for rows in (plan["formats"].values(), plan["roles"].values()):
        for key in ("tensors", "parameters", "bytes"):
            assert total(rows, key) == plan[key]
        assert total(rows, "fraction") == pytest.approx(1, abs=1e-5)
    assert total(plan["roles"].values(), "fraction_outside_mtp") == pytest.approx(1, abs=1e-5)
    assert plan["bits_per_weight"] == pytest.approx(plan["bytes"] * 8 / plan["parameters"], abs=1e-4)


def test_the_absorbed_projection_of_deepseek_v3_is_kept_and_its_size_exact(run: Run) -> None:
    """`kv_b_proj` of 61 decoder layers in BF16: 1.90625 GiB, and the MTP layer's is not among them."""
    plan = run("plan", "mxfp8_e2e", "--model", DEEPSEEK, "--output-format", "json").json
    assert plan["roles"]["mla"]["tensors"] == 61
    assert plan["roles"]["mla"]["bytes"] == 1.90625 * 2**30
    (row,) = [
        line for line in run("plan", "mxfp8_e2e", "--model", DEEPSEEK).out.splitlines() if line.startswith("mla ")
    ]
    assert "1.90625 GiB" in row


def test_the_experts_share_of_deepseek_v3_leaves_the_mtp_layer_aside(run: Run) -> None:
    """97.8 % of 671 B parameters."""
    roles = run("plan", "mxfp8_e2e", "--model", DEEPSEEK, "--output-format", "json").json["roles"]
    share = roles["routed_experts"]["fraction_outside_mtp"] + roles["shared_experts"]["fraction_outside_mtp"]
    assert round(share * 100, 1) == 97.8
    assert roles["mtp"]["fraction_outside_mtp"] == 0
    text = run("plan", "mxfp8_e2e", "--model", DEEPSEEK).out
    assert "routed and shared experts: 97.8 % of the 671.0 B parameters outside MTP layers" in text


def test_rules_count_what_they_matched_and_won(run: Run, policy: Write) -> None:
    """Experts one by one; a rule that a later one beats keeps its matches and loses its wins."""
    name = policy("default: bf16\nexperts.*: nvfp4 per_token\nlayers[-8:]: bf16\nexperts.*: backward dequantized\n")
    rules = run("plan", name, "--model", QWEN, "--output-format", "json").json["rules"]
    counts = [(rule["line"], rule["matched"], rule["won"]) for rule in rules]
    experts = 48 * 128 * 3
    assert counts[1] == (2, experts, experts * 40 // 48)
    assert counts[3] == (4, experts, experts * 40 // 48)
    assert rules[1]["text"] == "experts.*: nvfp4 per_token"
    assert rules[1]["file"] == "policy.prec"
    assert counts[0][0] == 1
    assert rules[1]["bytes"] * 8 == experts * 40 // 48 * (768 * 2048 * 4.5 + 32)


def test_the_text_has_no_escapes_and_aligned_columns_in_a_pipe(run: Run) -> None:
    """Every row of a table ends its numbers in the same column."""
    result = run("plan", "nvfp4_rl", "--model", QWEN)
    assert result.status == 0
    assert "\x1b" not in result.out
    lines = result.out.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("role "))
    table = lines[start : lines.index("", start)]
    assert {line.index(" GiB") for line in table[1:]} == {table[0].index("size")}


def test_findings_stand_beside_the_plan(run: Run, policy: Write) -> None:
    """A warning goes to the error stream, the plan stays parseable, the status is 0."""
    name = policy("kv_b_proj: bf16\nexperts.*: nvfp4 per_token\n")
    result = run("plan", name, "--model", QWEN, "--output-format", "json")
    assert result.status == 0
    assert result.json["model"] == QWEN
    assert "warning[P102]" in result.err


def test_a_policy_with_errors_has_a_plan_only_if_it_decides(run: Run, policy: Write) -> None:
    """A misspelt name still decides every tensor; a broken line decides nothing."""
    misspelt = run("plan", policy("kv_bproj: bf16\n"), "--model", DEEPSEEK, "--output-format", "json")
    assert misspelt.status == 1
    assert misspelt.json["tensors"] == 46_183
    broken = run("plan", policy("default: : bf16\n"), "--model", DEEPSEEK, "--output-format", "json")
    assert broken.status == 1
    assert [item["code"] for item in broken.json["findings"]] == ["P001"]


def test_a_plan_needs_one_model(run: Run) -> None:
    """None and two are mistakes."""
    assert run("plan", "bf16").status == 2
    assert "needs a model" in run("plan", "bf16").err
    assert "one model" in run("plan", "bf16", "-m", QWEN, "-m", DEEPSEEK).err
