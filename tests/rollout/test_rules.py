"""Each refusal fires where SGLang cannot run a contract, names the tensor and what would work, and is silent beside."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest
from rollout.rule_cases import CASES
from rollout.support import compiled, emitted, errors, findings

from precc.backend import Unsupported
from precc.diagnostics import Severity
from precc.graph.reading import read_model
from precc.pipeline import compile_policy
from precc.rules import modules
from precc.source import SourceFile
from precc_sglang import backend
from precc_sglang.versions import sglang_version


@pytest.mark.parametrize("name, bad, good, model, rollout, tensors", CASES)
def test_a_rule_fires_where_it_should_and_nowhere_else(
    name: str, bad: str, good: str, model: str, rollout: str, tensors: str
) -> None:
    """The message names engine, version and tensors; the help says what would work."""
    rule = import_module(f"{backend.rules}.{name}")
    contract = compiled(f"{bad}\n", model, rollout)
    found = list(rule.check(contract))
    assert [finding.code for finding in found] == [rule.CODE]
    assert found[0].message.startswith(f"SGLang {sglang_version(contract.rollout)} ")
    assert f"`{tensors}`" in found[0].message
    assert found[0].help
    assert found[0].severity is rule.SEVERITY
    assert found[0].span is not None
    assert list(rule.check(compiled(f"{good}\n", model, rollout))) == []


def test_every_rule_has_a_case() -> None:
    """But those that concern no single tensor, which have tests of their own."""
    named = {module.__name__.rpartition(".")[2] for module in modules(backend.rules)}
    assert named - {case[0] for case in CASES} == {"p701_architecture", "p701_version", "p702_draft_of_layer_zero"}


def test_a_draft_that_no_config_decides_is_information() -> None:
    """The server is started without it; nothing is said where nothing is quantized, or where the draft has a name."""
    rule = import_module(f"{backend.rules}.p702_draft_of_layer_zero")
    policy = "@routed_experts: nvfp4 per_token\n"
    (finding,) = rule.check(compiled(policy, "qwen3-next-80b-a3b"))
    assert finding.severity is Severity.INFO
    assert "`--speculative-algorithm`" in finding.help
    assert list(rule.check(compiled("default: bf16\n", "qwen3-next-80b-a3b"))) == []
    assert list(rule.check(compiled(policy, "deepseek-v3"))) == []


def test_a_version_that_is_not_modelled_is_refused() -> None:
    """With the versions that are."""
    (finding,) = findings(compiled("default: mxfp8\n", "qwen3-8b", "sglang=0.4.9"))
    assert finding.code == "P701"
    assert "0.5.23" in (finding.help or "")
    assert findings(compiled("default: mxfp8\n", "qwen3-8b", "sglang=0.5 flashinfer=0.7.2")) == []


def test_an_unknown_architecture_is_refused_and_never_guessed() -> None:
    """By the rule and, were it skipped, by the emission."""
    contract = compiled("default: mxfp8\n", "qwen3-8b")
    unknown = replace(contract, model=replace(contract.model, architecture="NewForCausalLM"))
    assert any("NewForCausalLM" in message for message in errors(unknown))
    with pytest.raises(Unsupported):
        emitted(unknown)


def test_a_finding_counts_tensors_and_is_one_for_a_cause() -> None:
    """Not one for each of thousands."""
    (finding,) = findings(compiled("default: nvfp4 per_token\n@routed_experts: bf16\n", "qwen3-30b-a3b"))
    assert "(192 tensors)" in finding.message
    assert finding.severity is Severity.ERROR


def test_a_defect_is_an_error_and_can_be_silenced() -> None:
    """What changes bytes or operands without a word stops a compile, until the author says that it is meant."""
    for module in modules(backend.rules):
        if module.CODE == "P702" and module.NAME != "sglang-draft-of-layer-zero":
            assert module.SEVERITY is Severity.ERROR
    policy = "default: fp8_block{}\ntargets: sglang\n"
    comments = {"": True, "  # precc: ignore[P702] served as DeepSeek serves it": False}
    for comment, stops in comments.items():
        source = SourceFile("p.prec", policy.format(comment))
        assert compile_policy(source, read_model("deepseek-v3"), [backend]).has_errors is stops


@pytest.mark.parametrize("model", ["deepseek-v3", "glm-4.5-air", "kimi-k2"])
@pytest.mark.parametrize("spec", ["fp8_block", "mxfp8", "nvfp4 per_token"])
def test_a_fusion_that_the_server_file_prevents_is_information(spec: str, model: str) -> None:
    """The argument stands in the file wherever that is all that is said."""
    contract = compiled(f"@routed_experts: {spec}\n", model)
    found = list(import_module(f"{backend.rules}.p203_shared_expert_fusion").check(contract))
    prevented = "disable-shared-experts-fusion: true\n" in emitted(contract)["sglang/server.yaml"]
    assert [finding.severity for finding in found] == [Severity.INFO if prevented else Severity.ERROR]


def test_query_and_key_down_projections_in_nvfp4_are_one_finding() -> None:
    """P202's; the engine's own rule is for other scales."""
    policy = "{q_a_proj,kv_a_proj_with_mqa}: weight nvfp4, train bf16\ntargets: sglang\n"
    done = compile_policy(SourceFile("p.prec", policy), read_model("deepseek-v3"), [backend])
    assert [finding.code for finding in done.findings if finding.is_error] == ["P202"]


SPANS: tuple[tuple[str, str, int], ...] = (
    ("p701_dense_nvfp4", "@attention: weight nvfp4\n@attention: input nvfp4 per_token\n", 2),
    ("p701_format", "@attention: mxfp8\n@attention: input fp8\n", 2),
    (
        "p701_process_wide",
        "@routed_experts: nvfp4 per_token\n@routed_experts in layers[:4]: input nvfp4 per_token four_over_six\n",
        2,
    ),
)


@pytest.mark.parametrize("name, policy, line", SPANS)
def test_a_finding_about_inputs_stands_where_they_are_decided(name: str, policy: str, line: int) -> None:
    """Not at the rule of the weight."""
    (found,) = import_module(f"{backend.rules}.{name}").check(compiled(policy, "qwen3-30b-a3b"))
    assert found.span is not None
    assert found.span.line == line


SPELLINGS = (
    ("p701_format", "@routed_experts: fp8_block, scales fp32\n", "`fp8_block scales fp32`"),
    (
        "p701_process_wide",
        "@routed_experts: nvfp4 per_token four_over_six\n"
        "@routed_experts in layers[3]: nvfp4 per_token, four_over_six\n",
        "`nvfp4 per_token four_over_six`",
    ),
)


@pytest.mark.parametrize("name, policy, spelling", SPELLINGS)
def test_an_option_in_a_clause_of_its_own_is_told_the_spelling_for_both_operands(
    name: str, policy: str, spelling: str
) -> None:
    """Options right behind the format belong to both operands."""
    (found,) = import_module(f"{backend.rules}.{name}").check(compiled(policy, "qwen3-30b-a3b"))
    assert spelling in (found.help or "")
