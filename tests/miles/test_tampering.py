"""Each flag that somebody forgets, mistypes or overrides is noticed, on the stage that it changes."""

from __future__ import annotations

from base64 import b64encode

import pytest
from miles.support import ADAPTIVE, BLOCKS, DEQUANTIZED, MXFP8, NVFP4, compiled, edited, emitted, findings

from precc_miles.emission import CONVERT, ENV_JSON, ENV_SHELL, EXPORT, INLINE, RECIPES, ROLLOUT, TRAIN

START, END = "--num-layers-at-start-in-bf16 0\n", "--num-layers-at-end-in-bf16 6\n"
FLAG = "--first-last-layers-bf16\n"

DIFFERENT: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("D1", MXFP8, TRAIN, START, "", "unquantized (trainer, export)"),
    ("D1", MXFP8, TRAIN, END, "", "mxfp8, backward native (trainer); mxfp8 (export)"),
    (
        "D2",
        MXFP8,
        TRAIN,
        FLAG,
        "",
        "unquantized (converter, rollout); mxfp8, backward native (trainer); mxfp8 (export)",
    ),
    ("D2", MXFP8, CONVERT, END, "", "mxfp8 (converter, rollout); unquantized (trainer, export)"),
    ("D3", MXFP8, EXPORT, ".linear_kv_up_proj. ", "", "mxfp8 (export)"),
    ("D3", MXFP8, CONVERT, ".kv_b_proj. ", "", "mxfp8 (converter, rollout)"),
    ("D8", MXFP8, EXPORT, " .wk.", "", "mxfp8 (export)"),
    ("D10", NVFP4, TRAIN, FLAG, "", "unquantized (converter, export, rollout)"),
    ("H7", MXFP8, CONVERT, ".indexer.", ".indexers.", "mxfp8 (converter)"),
)
"""The number, a policy, the file, what is replaced by what, and the stages that then stand apart."""

MODELS = {NVFP4: "qwen3-30b-a3b", MXFP8: "deepseek-v3.2"}


@pytest.mark.parametrize("number, policy, path, old, new, stages", DIFFERENT)
def test_a_flag_that_is_left_out_is_found_on_its_stages(
    number: str, policy: str, path: str, old: str, new: str, stages: str
) -> None:
    """P501 says what each stage would run."""
    contract = compiled(policy, MODELS[policy])
    found = findings(contract, edited(emitted(contract), path, old, new))
    assert {finding.code for finding in found} == {"P501"}
    assert any(stages in finding.message for finding in found), [finding.message for finding in found]


UNREADABLE: tuple[tuple[str, str, str, str, str], ...] = (
    (NVFP4, CONVERT, "--num-layers-at-end-in-bf16", "--num-layers-at-end-bf16", "is no argument that a contract sets"),
    (NVFP4, CONVERT, "convert_hf_to_nvfp4.py", "convert_hf_to_int4.py", "is no converter"),
    (NVFP4, TRAIN, "--fp4-format e2m1", "--fp8-format e4m3", "is no format of a contract"),
    (NVFP4, TRAIN, "--bf16\n", "", "what everything rests on"),
    (NVFP4, TRAIN, INLINE, "/shared/recipes.yaml ", "has 2 values"),
    (NVFP4, EXPORT, "raw", "bridge", "forwards neither FP4, nor layer counts, nor recipes"),
    (NVFP4, ROLLOUT, "--sglang-kv-cache-dtype bf16\n", "", "`--sglang-kv-cache-dtype auto`; the contract needs bf16"),
    (NVFP4, ROLLOUT, "modelopt_fp4", "modelopt_mixed", "the contract needs modelopt_fp4"),
    (NVFP4, RECIPES, "enabled: true", "enabled: false", "it is not the text"),
    (NVFP4, ENV_SHELL, "export NVTE_USE_FAST_MATH=0", "unset NVTE_USE_FAST_MATH", "NVTE_USE_FAST_MATH is unset here"),
    (NVFP4, ENV_SHELL, "unset SGLANG_INT4_WEIGHT\n", "", "SGLANG_INT4_WEIGHT is left as it was here"),
    (NVFP4, ENV_JSON, '"parameter_gather": "off"', '"parameter_gather": "on"', "parameter gather"),
    (NVFP4, ENV_JSON, '"sglang": "0.5.16"', '"sglang": "0.5.23"', "another profile"),
)
"""A policy, the file, what is replaced by what, and what is then said."""


@pytest.mark.parametrize("policy, path, old, new, said", UNREADABLE)
def test_what_no_contract_writes_is_refused(policy: str, path: str, old: str, new: str, said: str) -> None:
    """P502 names the file and says what is wrong in it."""
    contract = compiled(policy, MODELS[policy])
    (found,) = findings(contract, edited(emitted(contract), path, old, new))
    assert found.code == "P502"
    assert said in found.message


@pytest.mark.parametrize("path", [TRAIN, EXPORT, ROLLOUT, ENV_SHELL, ENV_JSON])
def test_a_missing_file_is_refused(path: str) -> None:
    """None of them has a default that says the same."""
    contract = compiled(NVFP4, "qwen3-30b-a3b")
    (found,) = findings(contract, {name: text for name, text in emitted(contract).items() if name != path})
    assert (found.code, path in found.message) == ("P502", True)


VARIABLES: tuple[tuple[str, str, str, str, str], ...] = (
    ("NVTE_NVFP4_4OVER6_E4M3_USE_256", "all", "none", ADAPTIVE, "max 448 (converter, export)"),
    ("FLASHINFER_NVFP4_4OVER6_E4M3_USE_256", "1", "0", ADAPTIVE, "max 448 (rollout)"),
    ("NVTE_NVFP4_ROW_SCALED_ACTIVATION", "1", "0", ADAPTIVE, "per_tensor"),
    ("SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION", "1", "0", ADAPTIVE, "(rollout)"),
    ("FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH", "1", "0", ADAPTIVE, "approximate scales (rollout)"),
    ("NVTE_BACKWARD_OVERRIDE", "dequantized", "high_precision", DEQUANTIZED, "backward high_precision (trainer)"),
    ("NVTE_FP8_BLOCK_SCALING_FP32_SCALES", "1", "0", BLOCKS, "fp8_block (export)"),
)
"""D18 and its like: a variable, its value, another one, a policy, and what a stage would then run."""


@pytest.mark.parametrize("name, value, other, policy, said", VARIABLES)
def test_a_variable_changes_the_stages_that_read_it(name: str, value: str, other: str, policy: str, said: str) -> None:
    """Changed in both files, it reads back as other numbers on these stages."""
    contract = compiled(policy, "qwen3-30b-a3b")
    artifacts = edited(emitted(contract), ENV_SHELL, f"export {name}={value}\n", f"export {name}={other}\n")
    found = findings(contract, edited(artifacts, ENV_JSON, f'"{name}": "{value}"', f'"{name}": "{other}"'))
    assert {finding.code for finding in found} == {"P501"}
    assert any(said in finding.message for finding in found), [finding.message for finding in found]


def test_recipes_of_another_contract_are_refused() -> None:
    """The YAML names its contract, inside the arguments too."""
    contract, other = compiled(NVFP4, "qwen3-30b-a3b"), compiled(ADAPTIVE, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[RECIPES] = artifacts[RECIPES].replace(contract.digest, other.digest)
    inline = b64encode(artifacts[RECIPES].encode()).decode()
    head = artifacts[TRAIN].partition(INLINE)[0]
    (found,) = findings(contract, {**artifacts, TRAIN: f"{head}{INLINE}{inline}\n"})
    assert "belongs to another contract" in found.message


def test_an_override_takes_part_in_what_counts() -> None:
    """Of a repeated argument the last counts, as Miles' launchers append `--extra-args`."""
    contract = compiled(NVFP4, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    same = {**artifacts, TRAIN: artifacts[TRAIN] + "--num-layers-at-end-in-bf16 8\n"}
    assert findings(contract, same) == ()
    found = findings(contract, {**artifacts, TRAIN: artifacts[TRAIN] + "--num-layers-at-end-in-bf16 7\n"})
    assert {finding.code for finding in found} == {"P501"}
