"""Every way in which the files could say something else is seen when they are read back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from te.support import ADAPTIVE, INNER, MTP, MXFP8, TWO_BACKWARDS, TWO_LINES, compiled, emitted, findings

YAML = "te/te_precision.yaml"
ARGS = "te/megatron.args"
SHELL = "te/env.sh"
JSON = "te/env.json"

Edit = Callable[[str], str]


def swap(old: str, new: str, count: int = -1) -> Edit:
    """A replacement that must find what it replaces."""

    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new, count)

    return edit


def without_line(start: str) -> Edit:
    """The text without the first line that starts so."""

    def edit(text: str) -> str:
        lines = text.splitlines(keepends=True)
        found = next(line for line in lines if line.strip().startswith(start))
        lines.remove(found)
        return "".join(lines)

    return edit


def first_to_last(start: str) -> Edit:
    """The text with the first line that starts so moved to its end."""

    def edit(text: str) -> str:
        lines = text.splitlines(keepends=True)
        found = next(line for line in lines if line.strip().startswith(start))
        lines.remove(found)
        return "".join([*lines, found])

    return edit


def both_environments(variable: str, value: str | None) -> dict[str, Edit]:
    """A variable set to a value, or unset, in both files."""

    def shell(text: str) -> str:
        kept = [line for line in text.splitlines() if variable not in line.replace("=", " ").split()]
        return "\n".join([*kept, f"unset {variable}" if value is None else f"export {variable}={value}", ""])

    def content(text: str) -> str:
        held = json.loads(text)
        held["set"].pop(variable, None)
        held["unset"] = [name for name in held["unset"] if name != variable]
        held["unset"] += [variable] if value is None else []
        held["set"] |= {variable: value} if value is not None else {}
        return json.dumps(held)

    return {SHELL: shell, JSON: content}


LABEL = "routed_experts_fc1"
MUTATIONS: dict[str, tuple[str, dict[str, Edit], str]] = {
    "a matcher is not enabled": (TWO_LINES, {YAML: swap("enabled: true, ", "", 1)}, "P501"),
    "a matcher is disabled": (TWO_LINES, {YAML: swap("enabled: true", "enabled: false", 1)}, "P501"),
    "enabled by a word": (TWO_LINES, {YAML: swap("enabled: true", 'enabled: "false"', 1)}, "P502"),
    "no default matcher": (TWO_LINES, {YAML: without_line("everything_else")}, "P504"),
    "the default comes first": (TWO_LINES, {YAML: first_to_last(LABEL)}, "P501"),
    "a matcher is missing": (TWO_LINES, {YAML: without_line(LABEL)}, "P501"),
    "an unanchored pattern": (MXFP8, {YAML: swap("decoder.layers.*.mlp.linear_fc1", "*.linear_fc*")}, "P501"),
    "only grouped experts": (TWO_LINES, {YAML: swap("experts.*linear", "experts.linear")}, "P501"),
    "one expert apart": (TWO_LINES, {YAML: swap("*linear_fc1", "local_experts.[0-9].linear_fc1")}, "P501"),
    "a config that is missing": (TWO_LINES, {YAML: without_line("bf16:")}, "P502"),
    "a config of another recipe": (TWO_LINES, {YAML: swap('fp4_quantization_recipe: "nvfp4"', "")}, "P501"),
    "a misspelt recipe": (MXFP8, {YAML: swap('"mxfp8"', '"mxfp9"')}, "P502"),
    "E5M2 gradients": (MXFP8, {YAML: swap('"e4m3"', '"hybrid"')}, "P501"),
    "a field that does not exist": (MXFP8, {YAML: swap("fp8_format", "format")}, "P502"),
    "quantized in BF16 layers": (
        MXFP8,
        {YAML: swap('fp8_format: "e4m3"', 'fp8_format: "e4m3", override_nonquantized_autocast: true')},
        "P501",
    ),
    "not quantized in MTP layers": (MTP, {YAML: swap(", override_nonquantized_autocast: true", "")}, "P501"),
    "a recipe that yields": (
        TWO_LINES,
        {YAML: swap("training_recipe: {}", "training_recipe: {override_quantized_autocast: false}")},
        "P501",
    ),
    "another evaluation": (
        TWO_LINES,
        {YAML: swap('{fp4_quantization_recipe: "nvfp4"}', '{fp4_quantization_recipe: "nvfp4"}, evaluation_recipe: {}')},
        "P501",
    ),
    "weights gathered in FP8": (MXFP8, {YAML: swap('"e4m3"', '"e4m3", fp8_param: true')}, "P502"),
    "a true that is a word": (
        MXFP8,
        {YAML: swap('"e4m3"', '"e4m3", override_quantized_autocast: "false"')},
        "P502",
    ),
    "another factory": (TWO_BACKWARDS, {YAML: swap("factories.nvfp4_per_token_de", "factories.nvfp4_de")}, "P501"),
    "a factory that is none": (TWO_BACKWARDS, {YAML: swap("per_token_dequantized", "per_row_dequantized")}, "P502"),
    "a factory of another package": (TWO_BACKWARDS, {YAML: swap("precc_te.factories", "other.factories")}, "P502"),
    "no YAML": (MXFP8, {YAML: lambda _: "configs: {"}, "P502"),
    "more layers in BF16": (MXFP8, {ARGS: swap("end-in-bf16 10", "end-in-bf16 11")}, "P501"),
    "fewer layers in BF16": (MXFP8, {ARGS: swap("end-in-bf16 10", "end-in-bf16 9")}, "P501"),
    "a count left to its default": (MXFP8, {ARGS: without_line("--num-layers-at-start-in-bf16")}, "P501"),
    "no flag": (MXFP8, {ARGS: without_line("--first-last-layers-bf16")}, "P501"),
    "another engine-wide format": (TWO_LINES, {ARGS: swap("--fp4-format e2m1", "--fp4-format e4m3")}, "P502"),
    "two formats": (TWO_LINES, {ARGS: lambda text: text + "--fp8-format e4m3\n--fp8-recipe mxfp8\n"}, "P502"),
    "no format": (TWO_LINES, {ARGS: without_line("--fp4-format")}, "P502"),
    "delayed scaling": (MXFP8, {ARGS: without_line("--fp8-recipe")}, "P502"),
    "no BF16": (MXFP8, {ARGS: without_line("--bf16")}, "P502"),
    "the local implementation": (MXFP8, {ARGS: swap("-impl transformer_engine", "-impl local")}, "P502"),
    "an unknown argument": (MXFP8, {ARGS: lambda text: text + "--fp8-param-gather\n"}, "P502"),
    "no recipe file": (MXFP8, {ARGS: without_line("--te-precision-config-file")}, "P502"),
    "another backward mode": (TWO_LINES, both_environments("NVTE_BACKWARD_OVERRIDE", "dequantized"), "P501"),
    "no backward mode": (TWO_LINES, both_environments("NVTE_BACKWARD_OVERRIDE", None), "P501"),
    "no mode of that name": (TWO_LINES, both_environments("NVTE_BACKWARD_OVERRIDE", "bf16"), "P502"),
    "a mode over factories": (TWO_BACKWARDS, both_environments("NVTE_BACKWARD_OVERRIDE", "dequantized"), "P501"),
    "per tensor": (TWO_LINES, both_environments("NVTE_NVFP4_ROW_SCALED_ACTIVATION", None), "P501"),
    "truth is one": (TWO_LINES, both_environments("NVTE_NVFP4_ROW_SCALED_ACTIVATION", "true"), "P501"),
    "Hadamard": (TWO_LINES, both_environments("NVTE_NVFP4_DISABLE_RHT", "0"), "P501"),
    "stochastic rounding": (TWO_LINES, both_environments("NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING", None), "P501"),
    "2-D weights": (TWO_LINES, both_environments("NVTE_NVFP4_DISABLE_2D_QUANTIZATION", None), "P501"),
    "four over six": (TWO_LINES, both_environments("NVTE_NVFP4_4OVER6", "weights"), "P501"),
    "fast math": (TWO_LINES, both_environments("NVTE_USE_FAST_MATH", "1"), "P501"),
    "fast math of four over six": (ADAPTIVE, both_environments("NVTE_NVFP4_4OVER6_ERR_USE_FAST_MATH", "1"), "P501"),
    "FP8 attention": (TWO_LINES, both_environments("NVTE_FP8_DPA_BWD", "1"), "P502"),
    "an unknown variable": (TWO_LINES, both_environments("NVTE_NEW_SWITCH", "1"), "P502"),
    "an unknown variable unset": (TWO_LINES, both_environments("NVTE_NEW_SWITCH", None), "P502"),
    "FP32 scales": (
        "default: fp8_block\n",
        both_environments("NVTE_FP8_BLOCK_SCALING_FP32_SCALES", "1"),
        "P501",
    ),
    "set in one file only": (
        TWO_LINES,
        {SHELL: swap("export NVTE_USE_FAST_MATH=0", "unset NVTE_USE_FAST_MATH")},
        "P502",
    ),
    "unset in one file only": (
        MXFP8,
        {JSON: swap('"set": {}', '"set": {"NVTE_USE_FAST_MATH": "1"}')},
        "P502",
    ),
    "left as it was": (TWO_LINES, {SHELL: without_line("unset NVTE_NVFP4_4OVER6")}, "P502"),
    "an open quote": (TWO_LINES, {SHELL: lambda text: text + 'export A="\n'}, "P502"),
    "a command in the script": (TWO_LINES, {SHELL: lambda text: text + "export A=1 B=2\n"}, "P502"),
    "parameter gather": (MXFP8, {JSON: swap('"parameter_gather": "off"', '"parameter_gather": "on"')}, "P502"),
    "maxima over some ranks": (MXFP8, {YAML: swap('"e4m3"', '"e4m3", tp_only_amax_red: true')}, "P502"),
    "fewer forbidden arguments": (MXFP8, {JSON: swap('"--fp8-output-proj",', "")}, "P502"),
    "a further fact": (MXFP8, {JSON: swap('"parameter_gather"', '"dtype": "fp16", "parameter_gather"')}, "P502"),
    "no JSON": (MXFP8, {JSON: lambda _: "{"}, "P502"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_an_edit_is_seen(name: str) -> None:
    """Each edit is found under the code that says what kind of fault it is; untouched, nothing is."""
    policy, edits, code = MUTATIONS[name]
    contract = compiled(policy, "deepseek-v3")
    artifacts = emitted(contract)
    assert findings(contract, artifacts) == ()
    edited = {path: edits.get(path, str)(text) for path, text in artifacts.items()}
    assert edited != artifacts
    found = findings(contract, edited)
    assert {finding.code for finding in found} == {code}


def test_a_flag_without_layers_to_keep_changes_nothing() -> None:
    """Both counts are written, so that a launcher's stray flag keeps no layer in BF16."""
    contract = compiled("default: mxfp8\n", "deepseek-v3")
    artifacts = emitted(contract)
    artifacts[ARGS] += "--first-last-layers-bf16\n"
    assert findings(contract, artifacts) == ()


STAGED = ("te/te_precision.stage2.yaml", "te/with_stage_recipe.sh", SHELL, JSON)


@pytest.mark.parametrize("path", STAGED)
@pytest.mark.parametrize("change", ["0" * 64, ""])
def test_a_file_of_another_contract_is_refused(path: str, change: str) -> None:
    """Every file that can carry a digest carries this contract's, whatever it decides."""
    contract = compiled(INNER, "qwen3-30b-a3b", "pp=4")
    artifacts = emitted(contract)
    assert contract.digest in artifacts[path]
    (found,) = findings(contract, {**artifacts, path: artifacts[path].replace(contract.digest, change)})
    assert found.code == "P502"
    assert path in found.message


@pytest.mark.parametrize("path", [YAML, ARGS, SHELL, JSON])
def test_a_missing_artifact_is_named(path: str) -> None:
    """One finding P502 with its path."""
    contract = compiled(MXFP8, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    del artifacts[path]
    (found,) = findings(contract, artifacts)
    assert found.code == "P502"
    assert path in found.message


def test_recipes_of_two_stages_are_not_interchangeable() -> None:
    """Each stage's file is read for its own layers, and the wrapper must be there and for that many."""
    contract = compiled(INNER, "qwen3-30b-a3b", "pp=4")
    artifacts = emitted(contract)
    assert findings(contract, artifacts) == ()
    names = ("te/te_precision.stage0.yaml", "te/te_precision.stage1.yaml")
    crossed = {**artifacts, names[0]: artifacts[names[1]], names[1]: artifacts[names[0]]}
    assert {finding.code for finding in findings(contract, crossed)} == {"P501"}
    script = "te/with_stage_recipe.sh"
    fewer = {**artifacts, script: artifacts[script].replace("stages=4", "stages=2")}
    assert [finding.code for finding in findings(contract, fewer)] == ["P502"]
    without = {path: text for path, text in artifacts.items() if path != script}
    assert [finding.code for finding in findings(contract, without)] == ["P502"]


def test_recipes_of_one_pipeline_are_wrong_for_another() -> None:
    """Local layer numbers: what is exact for one stage is another layer in two, and open where layers do not divide."""
    artifacts = emitted(compiled(INNER, "qwen3-30b-a3b"))
    for train, said in (("pp=2", "as bf16"), ("pp=5", "both"), ("vpp=2", "as bf16")):
        found = findings(compiled(INNER, "qwen3-30b-a3b", train), artifacts)
        assert {finding.code for finding in found} == {"P501"}, train
        assert any(said in finding.message for finding in found), train


def test_a_difference_names_both_sides_and_where_each_is_said() -> None:
    """The tensor, what would run, what was decided, the matcher and the rule."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    artifacts = emitted(contract)
    artifacts[YAML] = without_line(LABEL)(artifacts[YAML])
    found = findings(contract, artifacts)[0]
    assert "mlp.experts.{0..127}.{gate,up}_proj" in found.message
    assert "as bf16; the contract says nvfp4, per token, backward high_precision" in found.message
    assert "te/te_precision.yaml, matcher `everything_else` (*)" in (found.help or "")
    assert "p.prec:2" in (found.help or "")
