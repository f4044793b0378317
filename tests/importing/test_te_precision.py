"""Megatron's recipes and launch lines: what is compiled reads back as it was decided, and Megatron's matchers agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from importing.judging import matched, tools
from importing.support import SAMPLES, counts, decisions, imported, messages, model, reading, rules, written

from precc.graph.model import ModelGraph
from precc.importing.reading import Unimportable
from precc.pipeline import compile_policy
from precc.source import SourceFile
from precc_te import backend
from precc_te.names import Names
from precc_te.precision import precision_of
from precc_te.spelling import decision_of

POLICIES = sorted(path for path in (Path(__file__).parents[2] / "policies").glob("*.prec"))

MXFP8 = "--bf16 --transformer-impl transformer_engine --fp8-format e4m3 --fp8-recipe mxfp8"
NVFP4 = "--bf16 --transformer-impl transformer_engine --fp4-format e2m1 --fp4-recipe nvfp4"


def compiled(policy: Path | str, graph: ModelGraph, folder: Path, train: str = "") -> Any:
    """The contract, and its `te/` written to a folder."""
    text = policy.read_text() if isinstance(policy, Path) else policy
    source = SourceFile(str(policy) if isinstance(policy, Path) else "policy.prec", text + train)
    done = compile_policy(source, graph, [backend])
    assert done.binding is not None
    assert not done.has_errors, [finding.message for finding in done.findings]
    for emission in done.emissions:
        for artifact in emission.artifacts:
            written(folder, Path(artifact.path).name, artifact.text)
    return done.binding.contract


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "deepseek-v3"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda path: path.stem)
def test_what_is_compiled_is_read_back_as_it_was_decided(policy: Path, name: str, tmp_path: Path) -> None:
    """For every ready policy: the imported policy trains each tensor as the compiled one does."""
    graph = model(name)
    contract = compiled(policy, graph, tmp_path)
    found = imported(tmp_path, graph)
    other = compile_policy(SourceFile("imported.prec", found.text), graph, [backend])
    assert other.binding is not None
    assert not other.has_errors
    after = other.binding.contract
    for entry in contract.entries:
        (same,) = {again.decision for again in after.entries if again.tensor == entry.tensor}
        if entry.decision.trains_quantized:
            assert same == entry.decision, entry.tensor.name
        else:
            assert not same.is_quantized, entry.tensor.name
    assert found.rules <= 12


def test_recipes_for_each_pipeline_stage_are_read_together(tmp_path: Path) -> None:
    """Their numbers are the stages' own; the imported policy has the decoder's."""
    graph = model("qwen3-30b-a3b")
    policy = "default: mxfp8\nlayers[3]: bf16\n"
    compiled(policy, graph, tmp_path, "train: pp=4 megatron_core=0.19.2\n")
    assert len(list(tmp_path.glob("te_precision.stage*.yaml"))) == 4
    assert "layers[3]: bf16" in rules(tmp_path, graph)


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[..., Any]]:
    """A worker that has Megatron-Core's matchers."""
    with tools(absent=("transformer_engine",)) as asked:
        yield asked


CONFIGS = {"mxfp8": "mxfp8", "nvfp4": "nvfp4", "bf16": "bf16", None: "mxfp8"}
"""The format of each config of the sample; of none, the engine-wide one."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["deepseek-v3", "qwen3-30b-a3b", "nemotron-3-super-120b-a12b", "mimo-v2-flash", "minimax-m3"]
)
def test_megatron_s_own_matchers_choose_the_same(name: str, tmp_path: Path, ask: Callable[..., Any]) -> None:
    """Layer by layer, for a file with overlapping globs, classes of characters and a matcher that is not enabled."""
    graph = model(name)
    sample = SAMPLES / "te_overlapping.yaml"
    written(tmp_path, "te_precision.yaml", sample.read_text())
    written(tmp_path, "megatron.args", f"{MXFP8} --te-precision-config-file te_precision.yaml")
    found = reading(tmp_path, graph)
    names = Names(graph)
    asked = {
        f"decoder.layers.{module.layer}.{module.suffix}": decision
        for tensor, decision in found.decisions
        if (module := names.module(tensor)) is not None and module.mtp is None
    }
    for path, config in zip(asked, ask(matched, str(sample), list(asked)), strict=True):
        decision = asked[path]
        assert decision is not None
        assert decision.weight.format == CONFIGS[config], (path, config)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda path: path.stem)
def test_a_precision_has_one_spelling(policy: Path) -> None:
    """What a trainer runs for a decision is spelled by that decision."""
    done = compile_policy(SourceFile(str(policy), policy.read_text()), model("qwen3-30b-a3b"), [])
    assert done.binding is not None
    trained = {entry.decision for entry in done.binding.contract.entries if entry.decision.trains_quantized}
    for decision in trained:
        assert decision_of(precision_of(decision)) == decision  # type: ignore[arg-type]


def test_layers_without_a_matcher_run_the_engine_wide_recipe(tmp_path: Path) -> None:
    """The three matchers that Miles' recipes for DeepSeek-V3.2 have name exceptions alone."""
    written(tmp_path, "te_precision.yaml", (SAMPLES / "te_mla_bf16.yaml").read_text())
    written(tmp_path, "run.sh", f"torchrun pretrain_gpt.py {MXFP8} --te-precision-config-file /cfg/te_precision.yaml\n")
    graph = model("deepseek-v3")
    said = messages(imported(tmp_path, graph))
    assert [line[:4] for line in said] == ["P903", "P903"]
    assert "linear_k_up_proj" in said[0]
    assert "linear_v_up_proj" in said[1]
    assert decisions(reading(tmp_path, graph))["model.layers.7.self_attn.kv_b_proj"] == "bf16"


def test_without_variables_nvfp4_is_the_pretraining_recipe(tmp_path: Path) -> None:
    """TransformerEngine's defaults: 16×16 weights, Hadamard transforms and stochastic rounding."""
    path = written(tmp_path, "train.args", NVFP4)
    assert rules(path, model("llama-3.1-8b")) == [
        "default: nvfp4 per_tensor, weight_block 16x16, hadamard, stochastic_rounding",
        "targets: te",
    ]


def test_the_environment_counts(tmp_path: Path) -> None:
    """Variables that the script exports, or that stand in front of its command."""
    off = "NVTE_NVFP4_DISABLE_RHT=1 NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING=1 NVTE_NVFP4_DISABLE_2D_QUANTIZATION=1"
    line = f"{off} NVTE_BACKWARD_OVERRIDE=dequantized torchrun x.py {NVFP4}"
    path = written(tmp_path, "run.sh", f"export NVTE_NVFP4_ROW_SCALED_ACTIVATION=1\n{line}\n")
    assert rules(path, model("llama-3.1-8b"))[0] == "default: nvfp4 per_token, backward dequantized"


def test_layer_counts_have_megatron_s_defaults(tmp_path: Path) -> None:
    """One layer at each end, once the flag is given; none without it."""
    graph = model("qwen3-8b")
    path = written(tmp_path, "train.args", f"{MXFP8} --first-last-layers-bf16 --num-layers-at-end-in-bf16=3")
    assert rules(path, graph) == ["default: bf16", "targets: te", "layers[1:33]: mxfp8"]
    path = written(tmp_path, "train.args", f"{MXFP8} --num-layers-at-end-in-bf16 3")
    assert rules(path, graph)[0] == "default: mxfp8"
    assert len(rules(path, graph)) == 2


def test_a_number_within_a_stage_reaches_a_layer_of_each(tmp_path: Path) -> None:
    """`decoder.layers.0` is the first layer of every pipeline stage."""
    written(tmp_path, "te_precision.yaml", (SAMPLES / "te_first_layer.yaml").read_text())
    line = f"{MXFP8} --pipeline-model-parallel-size 4 --te-precision-config-file te_precision.yaml"
    written(tmp_path, "train.args", line)
    (said,) = messages(imported(tmp_path, model("qwen3-8b")))
    assert said.startswith("P904")
    assert "decoder layers 9, 18, 27" in said
    assert "layers[0,9,18,27]: bf16" in rules(tmp_path, model("qwen3-8b"))


def test_a_matcher_that_is_not_enabled_is_none(tmp_path: Path) -> None:
    """Megatron skips one without `enabled: true` and says nothing."""
    text = (SAMPLES / "te_first_layer.yaml").read_text().replace("enabled: true, ", "")
    written(tmp_path, "te_precision.yaml", text)
    written(tmp_path, "train.args", f"{MXFP8} --te-precision-config-file te_precision.yaml")
    assert rules(tmp_path, model("qwen3-8b"))[0] == "default: mxfp8"


def test_recipes_under_a_bf16_autocast_decide_nothing(tmp_path: Path) -> None:
    """Without an engine-wide mode a recipe needs `override_nonquantized_autocast`."""
    written(tmp_path, "te_precision.yaml", (SAMPLES / "te_overlapping.yaml").read_text())
    line = "--bf16 --transformer-impl transformer_engine --te-precision-config-file te_precision.yaml"
    written(tmp_path, "train.args", line)
    found = imported(tmp_path, model("qwen3-30b-a3b"))
    assert set(counts(found.reading)) == {"bf16", "None"}
    assert any("P903" in line and "experts" in line for line in messages(found))


def test_single_experts_have_matchers_without_grouping_alone(tmp_path: Path) -> None:
    """With `--moe-grouped-gemm` all experts of a rank are one layer, and `local_experts` is no part of its name."""
    written(tmp_path, "te_precision.yaml", (SAMPLES / "te_sequential.yaml").read_text())
    line = f"{MXFP8} --num-experts 128 --te-precision-config-file te_precision.yaml"
    graph = model("qwen3-30b-a3b")
    written(tmp_path, "train.args", f"{line} --moe-grouped-gemm")
    assert counts(reading(tmp_path, graph))["mxfp8, backward native"] == 48 * (128 * 3 + 4)
    written(tmp_path, "train.args", line)
    assert counts(reading(tmp_path, graph))["mxfp8, backward native"] == 48 * 4


@pytest.mark.parametrize(
    "line, code, words",
    [
        (MXFP8.replace("e4m3", "hybrid"), "P902", "E5M2"),
        ("--bf16 --fp8-format e4m3", "P902", "what Megatron assumes"),
        (f"{NVFP4} --fp8-format e4m3", "P901", "not both"),
        (f"{MXFP8} --fp16", "P902", "FP16"),
        (MXFP8.replace("transformer_engine", "local"), "P901", "own layers"),
        (f"{MXFP8} --te-precision-config-file missing.yaml", "P901", "not here"),
        (f"{MXFP8} --te-precision-config-file base64:%%", "P901", "base64"),
        ("--bf16 --fp8-format e4m3 --fp8-recipe ${RECIPE}", "P901", "does not set"),
        (f"NVTE_USE_FAST_MATH=1 {NVFP4}", "P902", "approximate reciprocals"),
        (f"NVTE_BACKWARD_OVERRIDE=fast {MXFP8}", "P902", "no backward mode"),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, line: str, code: str, words: str) -> None:
    """With a code that says whether Megatron would start with it."""
    path = written(tmp_path, "run.sh", line)
    with pytest.raises(Unimportable, match=words) as caught:
        reading(path, model("llama-3.1-8b"))
    assert caught.value.findings[0].code == code


def test_recipes_alone_need_a_matcher_for_everything(tmp_path: Path) -> None:
    """What other layers run stands on the launch line."""
    path = written(tmp_path, "te_precision.yaml", (SAMPLES / "te_mla_bf16.yaml").read_text())
    with pytest.raises(Unimportable, match="no matcher for everything"):
        reading(path, model("deepseek-v3"))
    alone = reading(SAMPLES / "te_overlapping.yaml", model("qwen3-30b-a3b"))
    assert "Read without a launch line" in alone.remarks[0]


def test_a_recipe_that_megatron_has_not_is_refused(tmp_path: Path) -> None:
    """A misspelt one would be found at the first step, long after start."""
    text = (SAMPLES / "te_overlapping.yaml").read_text().replace('mxfp8"}', 'mxfp9"}')
    path = written(tmp_path, "te_precision.yaml", text)
    with pytest.raises(Unimportable, match="no recipe `mxfp9`"):
        reading(path, model("qwen3-30b-a3b"))


def test_gathered_parameters_are_told(tmp_path: Path) -> None:
    """They change numbers, and no policy has a word for them."""
    path = written(tmp_path, "train.args", f"{MXFP8} --fp8-param-gather")
    (said,) = messages(imported(path, model("llama-3.1-8b")))
    assert said.startswith("P907 --fp8-param-gather is not read")
