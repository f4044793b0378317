"""`precc diff`: what two policies decide otherwise."""

from __future__ import annotations

from typing import Any

from cli.commands import Run, Write

from precc.cli.diff import compare
from precc.contract import Contract
from precc.formats import Decision
from precc.graph.reading import read_model
from precc.pipeline import decide_policy
from precc.source import SourceFile

QWEN, DEEPSEEK = "qwen3-30b-a3b", "deepseek-v3"


def test_policies_that_say_the_same_in_other_words_are_equal(run: Run, policy: Write) -> None:
    """Comments, names and the order of equal rules decide nothing."""
    a = policy("experts.*: nvfp4 per_token\nlayers[40:]: bf16\n", "a.prec")
    b = policy("# mine\nlet e = nvfp4 per_token\n@routed_experts: e\nlayers[-8:]: bf16\n", "b.prec")
    result = run("diff", a, b, "--model", QWEN, "--exit-code")
    assert result.status == 0
    assert result.out.startswith(f"a and b decide the same on {QWEN} (digest ")


def text(decision: dict[str, Any]) -> str:
    """A decision of the JSON as policies write it."""
    return str(Decision.from_json(decision))


def test_json_has_the_documented_shape(run: Run, policy: Write) -> None:
    """One line a group of tensors, ranges folded, with counts."""
    name = policy('extends "nvfp4_rl"\n@routed_experts: backward dequantized\nkv_cache: fp8\n')
    result = run("diff", "nvfp4_rl", name, "--model", QWEN, "--output-format", "json")
    assert result.status == 0
    shown = result.json
    assert list(shown) == ["equal", "a", "b", "tensors"]
    assert all(list(shown[side]) == ["policy", "model", "digest", "bytes", "kv_cache"] for side in "ab")
    assert (shown["equal"], shown["a"]["kv_cache"], shown["b"]["kv_cache"]) == (False, "bf16", "fp8")
    assert shown["a"]["bytes"] == shown["b"]["bytes"]
    assert {row["name"] for row in shown["tensors"]} == {
        f"model.layers.{{0..39}}.mlp.experts.{{0..127}}.{part}_proj.weight" for part in ("gate", "up", "down")
    }
    for row in shown["tensors"]:
        assert list(row) == ["name", "tensors", "parameters", "a", "b"]
        assert (row["tensors"], row["parameters"]) == (40 * 128, 40 * 128 * 768 * 2048)
        assert text(row["a"]) == "nvfp4 per_token, backward high_precision"
        assert text(row["b"]) == "nvfp4 per_token, backward dequantized"


def test_the_difference_is_exactly_what_the_second_rule_changed(run: Run, policy: Write) -> None:
    """One projection of one layer."""
    a = policy("experts.*: mxfp8\n", "a.prec")
    b = policy("experts.*: mxfp8\nlayers[7].self_attn.o_proj: mxfp8\n", "b.prec")
    (row,) = run("diff", a, b, "--model", QWEN, "--output-format", "json").json["tensors"]
    assert row["name"] == "model.layers.7.self_attn.o_proj.weight"
    assert (row["tensors"], row["parameters"]) == (1, 2048 * 4096)
    assert (text(row["a"]), text(row["b"])) == ("bf16", "mxfp8, backward native")


def test_ranges_of_experts_are_cut_where_either_side_cuts_them() -> None:
    """One expert of one layer, and a range that the two sides cut at different places."""
    model = read_model(QWEN)

    def contract(text: str) -> Contract:
        binding = decide_policy(SourceFile("p.prec", text), model, ("converter",)).binding
        assert binding is not None
        return binding.contract

    plain = contract("experts.*: mxfp8\n")
    one = contract("experts.*: mxfp8\nlayers[7].mlp.experts.5.down_proj: bf16\n")
    (row,) = compare(plain, one)["tensors"]
    assert (row["name"], row["tensors"]) == ("model.layers.7.mlp.experts.5.down_proj.weight", 1)
    assert text(compare(one, plain)["tensors"][0]["a"]) == "bf16"
    tens = contract("experts.*: mxfp8\nlayers[7].mlp.experts.1*.down_proj: bf16\n")
    rows = compare(one, tens)["tensors"]
    assert {row["name"].split("experts.")[1].removesuffix(".down_proj.weight"): row["tensors"] for row in rows} == {
        "1": 1,
        "5": 1,
        "{10..19}": 10,
        "{100..127}": 28,
    }


def test_exit_code_tells_only_when_asked(run: Run) -> None:
    """As `git diff` does."""
    assert run("diff", "bf16", "nvfp4_rl", "--model", QWEN).status == 0
    assert run("diff", "bf16", "nvfp4_rl", "--model", QWEN, "--exit-code").status == 1


def test_a_compiled_folder_is_compared_without_a_model(run: Run, policy: Write) -> None:
    """With another, or with the policy that it came from; a contract file will do."""
    for name, folder in (("nvfp4_rl", "a"), ("nvfp4_rl_dequantized_backward", "b")):
        assert run("compile", name, "--model", QWEN, "-o", folder).status == 0
    assert run("diff", "a", "b/contract.json", "--exit-code").status == 1
    assert run("diff", "a", "nvfp4_rl", "--model", QWEN, "--exit-code").status == 0
    assert run("diff", "a", "nvfp4_rl").status == 2


def test_two_models_are_compared_by_the_names_they_share(run: Run) -> None:
    """A tensor that only one side has is told as such."""
    for model, folder in ((QWEN, "a"), ("qwen3-235b-a22b", "b")):
        assert run("compile", "bf16", "--model", model, "-t", "converter", "-o", folder).status == 0
    rows = run("diff", "a", "b", "--output-format", "json").json["tensors"]
    assert {row["a"] is None or row["b"] is None for row in rows} == {True}


def test_what_cannot_be_compared_is_one_error(run: Run, policy: Write) -> None:
    """A policy with errors, a folder of something else, a file that is no contract."""
    result = run("diff", policy("default: mxfp9\n"), "bf16", "--model", QWEN)
    assert (result.status, result.out) == (1, "")
    assert "error[P002]" in result.err
    policy("{}", "x.json")
    assert "not a contract" in run("diff", "x.json", "bf16", "--model", QWEN).err
    assert run("diff", ".", "bf16", "--model", QWEN).status == 2
