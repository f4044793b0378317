"""What this engine refuses, under which code, and where it is silent."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from te.support import (
    INNER,
    MIXED,
    MTP,
    MXFP8,
    PRETRAINING,
    TWO_BACKWARDS,
    TWO_LINES,
    compiled,
    emitted,
    findings,
    refusals,
)

from precc import rules
from precc.backend import Unsupported, find_backend
from precc.diagnostics import Diagnostic, Severity
from precc.formats import Decision, Quantization
from precc.formats.decision import Backward
from precc.graph.reading import read_model
from precc.graph.shrinking import complete_config
from precc.pipeline import compile_policy
from precc.source import SourceFile
from precc_te import backend
from precc_te.precision import BF16, UNADDRESSED, Refusal, TePrecision, precision_of
from precc_te.rules.p702_forbidden_arguments import check_arguments

DEQUANTIZED_EXPERTS = "experts.*: nvfp4 per_token, backward dequantized\n"

REFUSED: dict[str, tuple[str, str, str, str]] = {
    "experts sharded": (TWO_LINES, "etp=2", "P503", "etp=1"),
    "per-tensor FP8 sharded": ("default: fp8 per_tensor\n", "tp=2", "P503", "tp=1"),
    "attention sharded": (PRETRAINING, "tp=4", "P503", "tp=1"),
    "too many layers kept": (MXFP8, "pp=8", "P506", "`pp` of at most 6"),
    "a single layer under virtual stages": (INNER, "pp=2 vpp=2", "P506", "vpp=1"),
    "a single layer, unequal stages": (INNER, "pp=5", "P506", "pp=1, 2, 3, 4, 6, 8, 12, 16, 24, 48"),
    "experts of the last layers under virtual stages": (
        "default: mxfp8\n@routed_experts in layers[-8:]: bf16\n", "pp=2 vpp=2", "P506", "except all of `layers[-8:]`",
    ),
    "two modes, old": (TWO_BACKWARDS, "te=2.18", "P701", "te=2.19"),
    "per token, old": (TWO_LINES, "te=2.15", "P701", "te=2.16"),
    "four over six, old": (
        "experts.*: nvfp4 per_tensor, four_over_six, backward high_precision\n", "te=2.16", "P701", "te=2.17",
    ),
    "mxfp8 on Hopper": (MXFP8, "gpu=h100", "P701", "gpu=b200"),
    "nvfp4 on Hopper": (TWO_LINES, "gpu=h200", "P701", "gpu=b200"),
    "FP32 block scales on Blackwell": ("default: fp8_block scales fp32\n", "gpu=gb300", "P701", "scales pow2"),
    "an unknown version": (MXFP8, "megatron_core=0.12", "P701", "0.19.2"),
    "FP8 per channel": ("experts.*: weight fp8 per_channel, input fp8\n", "", "P701", "per_tensor"),
    "two types of scale": ("experts.*: fp8_block, scales fp32\n", "", "P701", "`fp8_block scales fp32`"),
    "the router": ("@router: mxfp8\n", "", "P701", "bf16"),
    "the output layer": ("lm_head: mxfp8\n", "", "P701", "bf16"),
    "FP16 beside BF16": ("o_proj: fp16\n", "", "P701", "bf16"),
    "adaptive with Hadamard": ("experts.*: nvfp4 per_tensor, hadamard, four_over_six\n", "", "P701", "hadamard"),
    "dequantized where inputs are kept": ("default: mxfp8, backward dequantized\n", "te=2.17", "P702", "te=2.18"),
    "dequantized where inputs may be kept": (DEQUANTIZED_EXPERTS, "te=2.17", "P702", "te=2.18"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_has_its_code_its_rule_and_a_way_out(name: str) -> None:
    """One kind of finding, on the rule that decided, with the engine's reason and what would work."""
    policy, train, code, way_out = REFUSED[name]
    found = list(refusals(compiled(policy, "qwen3-30b-a3b", train)))
    assert {finding.code for finding in found} == {code}
    assert way_out in (found[0].help or "")
    assert found[0].span is not None or name == "an unknown version"


SILENT: dict[str, tuple[str, str]] = {
    "experts spread, not sharded": (TWO_LINES, "ep=8 etp=1 tp=4"),
    "MXFP8 sharded": (MXFP8, "tp=8 etp=2"),
    "layers kept under FP4": ("layers[:20]: bf16\nexperts.*: nvfp4 per_token\nlayers[:20]: bf16\n", "pp=8"),
    "layers kept, virtual stages": (MXFP8, "pp=4 vpp=2"),
    "a single layer, equal stages": (INNER, "pp=16"),
    "one mode, old": ("default: mxfp8, backward high_precision\n", "te=2.15"),
    "two modes": (TWO_BACKWARDS, "te=2.19 pp=1"),
    "block FP8 on Hopper": ("default: fp8_block scales fp32\n", "gpu=h200"),
    "block FP8 on Blackwell": ("default: fp8_block\n", "gpu=b300"),
    "served only": ("experts.*: int4, train bf16\n", ""),
    "native is native": (MIXED, "te=2.16"),
    "MTP": (MTP, ""),
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said_of_what_runs(name: str) -> None:
    """The near misses of the refusals."""
    policy, train = SILENT[name]
    assert list(rules.check_backend(backend.rules, compiled(policy, "qwen3-30b-a3b", train))) == []


@pytest.mark.parametrize(
    "policy, said",
    [
        (DEQUANTIZED_EXPERTS, "asks to keep it: where activations are recomputed or offloaded"),
        (
            "default: mxfp8, backward dequantized\n",
            "always for `model.layers.{0..47}.self_attn.o_proj`, for others where",
        ),
    ],
)
def test_a_defect_that_depends_on_unseen_arguments_is_an_error_that_can_be_silenced(policy: str, said: str) -> None:
    """Routed experts keep their original input only where activations are recomputed or offloaded."""
    (found,) = rules.check_backend(backend.rules, compiled(policy, "qwen3-30b-a3b", "te=2.17"))
    assert (found.code, found.severity) == ("P702", Severity.ERROR)
    assert said in found.message
    silenced = policy.replace("\n", "  # precc: ignore[P702] nothing is recomputed\n") + "train: te=2.17\n"
    done = compile_policy(SourceFile("p.prec", silenced), read_model("qwen3-30b-a3b"), [backend])
    assert not done.has_errors
    assert done.emissions[0].agree


REPORTED: dict[str, tuple[str, str]] = {
    "weights only": ("experts.*: weight nvfp4\n", "P505"),
    "INT4": ("experts.*: int4\n", "P505"),
    "mixed operands": ("experts.*: weight nvfp4, input mxfp8\n", "P505"),
    "static scales": ("experts.*: weight fp8, input fp8 static\n", "P505"),
    "a format of the server": ("experts.*: mxfp4\n", "P505"),
    "a router in a format of the server": ("@router: int4\n", "P505"),
    "no native backward": ("experts.*: nvfp4 per_token\nexperts.*: backward native\n", "P304"),
    "no operand": ("@norm: mxfp8\n", "P305"),
}


@pytest.mark.parametrize("name", REPORTED)
def test_what_precc_reports_itself_is_said_once_and_still_refused(name: str) -> None:
    """The engine's own rules are silent about it; whoever skips all rules gets a refusal of every verb."""
    policy, code = REPORTED[name]
    contract = compiled(policy, "qwen3-30b-a3b")
    assert list(refusals(contract)) == []
    done = compile_policy(SourceFile("p.prec", policy), read_model("qwen3-30b-a3b"), [backend])
    errors = {finding.code for finding in done.findings if finding.is_error}
    assert code in errors
    assert errors <= {code, "P401"}
    for verb in (backend.emit, backend.decides):
        with pytest.raises(Unsupported) as refusal:
            verb(contract)
        assert {finding.code for finding in refusal.value.findings} == {"P701"}


SPANS: dict[str, tuple[str, str, int]] = {
    "a backward mode": ("experts.*: mxfp8\nlayers[24:]: backward dequantized\n", "te=2.18", 2),
    "a mode that is defeated": ("experts.*: mxfp8\n@routed_experts: backward dequantized\n", "te=2.17", 2),
    "a mode of single layers": ("default: mxfp8\nlayers[5]: backward dequantized\n", "pp=2 vpp=2", 2),
    "a scope of single layers": (
        "experts.*: nvfp4 per_token, backward high_precision\nexperts.* in layers[5]: input nvfp4 per_tensor\n",
        "vpp=2",
        2,
    ),
    "a scope": ("experts.*: fp8 per_tensor\n@routed_experts: input fp8 per_token\n", "", 2),
    "a format": ("experts.*: nvfp4 per_token\n@routed_experts: backward dequantized\n", "gpu=h100", 1),
}


@pytest.mark.parametrize("name", SPANS)
def test_a_finding_stands_at_the_clause_that_caused_it(name: str) -> None:
    """An amendment is not the rule that decided the weight."""
    policy, train, line = SPANS[name]
    (found,) = refusals(compiled(policy, "qwen3-30b-a3b", train))
    assert found.span is not None
    assert found.span.line == line


@pytest.mark.parametrize("rollout", ["tp=2", "tp=4 ep=2", "tp=4 ep=4"])
@pytest.mark.parametrize("etp", [2, 4])
def test_what_the_help_for_sharded_experts_says_works(etp: int, rollout: str) -> None:
    """Both P503 may fire: whichever help is followed, neither fires again."""
    targets = [backend, find_backend("sglang")]

    def found(train: str, rollout: str) -> list[Diagnostic]:
        text = f"{TWO_LINES.replace('token', 'token, backward high_precision')}train: {train}\nrollout: {rollout}\n"
        done = compile_policy(SourceFile("p.prec", text), read_model("qwen3-30b-a3b"), targets)
        return [finding for finding in done.findings if finding.code == "P503"]

    first = found(f"etp={etp}", rollout)
    assert first
    for finding in first:
        said = re.findall(r"`(?:train|rollout): ([^`]*)`", finding.help or "")
        assert found("etp=1", said[1] if len(said) > 1 else rollout) == []


@pytest.mark.parametrize("backward", ["high_precision", "dequantized"])
def test_hadamard_and_stochastic_rounding_are_off_without_a_quantized_backward(backward: Backward) -> None:
    """Both act on its operands alone; a contract that says them all the same runs, and reads back, without."""
    operand = Quantization("nvfp4", (1, 16), "e4m3", "per_tensor")
    decision = Decision(operand, operand, backward, hadamard=True, stochastic_rounding=True)
    found = precision_of(decision)
    assert isinstance(found, TePrecision)
    assert found == TePrecision("nvfp4", backward)
    contract = compiled("experts.*: nvfp4 per_tensor, backward native\n", "qwen3-30b-a3b")
    said = [replace(e, decision=decision) if e.decision.is_quantized else e for e in contract.entries]
    contract = replace(contract, entries=tuple(said))
    variables = json.loads(emitted(contract)["te/env.json"])["set"]
    assert variables["NVTE_NVFP4_DISABLE_RHT"] == variables["NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING"] == "1"
    assert findings(contract, emitted(contract)) == ()


def test_a_duplicated_projection_is_not_sharded() -> None:
    """MLA's down-projections are whole on every tensor-parallel rank."""
    policy = "{q_a_proj,kv_a_proj_with_mqa}: nvfp4 per_tensor, backward native\n"
    assert list(refusals(compiled(policy, "deepseek-v3", "tp=8"))) == []
    assert [f.code for f in refusals(compiled("q_b_proj: nvfp4 per_tensor, backward native\n", "deepseek-v3", "tp=8"))]


def test_arguments_that_defeat_a_contract_are_named() -> None:
    """Those of a job, with or without `=`; only under the modes in which they do harm."""
    words = ["--overlap-moe-expert-parallel-comm", "--fp8-param-gather=1", "--micro-batch-size", "1"]
    low = [finding.message for finding in check_arguments(compiled(TWO_LINES, "qwen3-30b-a3b"), words)]
    assert len(low) == 2
    assert any("never enters the FP4 autocast" in message for message in low)
    assert len(list(check_arguments(compiled(MXFP8, "qwen3-30b-a3b"), words))) == 1
    assert list(check_arguments(compiled("default: bf16\n", "qwen3-30b-a3b"), words)) == []


def test_members_of_one_linear_layer_cannot_differ() -> None:
    """Refused at emission, with both names, whatever rules ran before."""
    contract = compiled("default: mxfp8\nq_proj: bf16\n", "qwen3-30b-a3b")
    with pytest.raises(Unsupported) as refusal:
        backend.emit(contract)
    found = refusal.value.findings
    assert {finding.code for finding in found} == {"P201"}
    assert len(found) == contract.model.layers
    assert "self_attention.linear_qkv" in found[0].message


def test_experts_of_one_layer_cannot_differ() -> None:
    """All local experts are one grouped GEMM."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    half = Decision(Quantization("bf16"), Quantization("bf16"))
    entries = []
    for entry in contract.entries:
        experts = entry.tensor.experts
        if experts is None or entry.tensor.layer != 3:
            entries.append(entry)
            continue
        entries.append(replace(entry, tensor=entry.tensor.narrowed(range(64))))
        entries.append(replace(entry, tensor=entry.tensor.narrowed(range(64, 128)), decision=half))
    with pytest.raises(Unsupported) as refusal:
        backend.emit(replace(contract, entries=tuple(entries)))
    assert {finding.code for finding in refusal.value.findings} == {"P201"}


def test_what_is_served_only_trains_in_bf16() -> None:
    """`train bf16` and `train fake_quant` are BF16 linear layers; what no recipe reaches says so."""
    contract = compiled("experts.*: int4, train fake_quant\n", "qwen3-30b-a3b")
    decided = dict(zip((tensor.part for tensor in contract.tensors), backend.decides(contract), strict=True))
    assert decided["gate"] == BF16
    assert decided["router"] == decided["norm"] == UNADDRESSED
    assert str(UNADDRESSED) == "bf16 (no TE module)"


@pytest.mark.parametrize(
    "config, train, said",
    [
        (
            {},
            "megatron_core=0.16.1",
            "Megatron-Core 0.16.1 builds an indexer in every layer; 57 layers of glm have none",
        ),
        ({"indexer_types": ["full", "shared"] * 39}, "megatron_core=0.19", ""),
        ({"indexer_types": ["full", "shared", "full", *["shared"] * 75]}, "megatron_core=0.19", "in another order"),
        ({"index_topk_freq": 1}, "megatron_core=0.16.1", ""),
    ],
)
def test_layers_without_an_indexer_follow_megatrons_rhythm(
    config: dict[str, object], train: str, said: str, tmp_path: Path
) -> None:
    """Since 0.19 the first few layers have one, and then every n-th; before, all have."""
    path = tmp_path / "glm.json"
    path.write_text(json.dumps({**complete_config(read_model("glm-5.2")), "indexer_types": None, **config}))
    done = compile_policy(SourceFile("p.prec", f"{MXFP8}train: {train}\n"), read_model(str(path)), [backend])
    told = [finding.message for finding in done.findings if finding.is_error]
    assert [said in message for message in told] == ([True] if said else [])


def test_a_refused_contract_has_no_decisions() -> None:
    """Asked all the same, the backend says why."""
    with pytest.raises(Unsupported, match="weight-only"):
        backend.decides(compiled("experts.*: int4\n", "qwen3-30b-a3b"))


def test_per_token_nvfp4_has_no_native_backward() -> None:
    """The binder never asks for it; a contract that does is refused."""
    operand = Quantization("nvfp4", (1, 16), "e4m3", "per_token")
    found = precision_of(Decision(Quantization("nvfp4", (1, 16), "e4m3", "per_tensor"), operand, "native"))
    assert isinstance(found, Refusal)
    assert "forward-only" in found.reason


def test_the_backend_is_one() -> None:
    """It is a Backend, and lists its versions newest first."""
    assert find_backend("te") is backend
    assert backend.name == "te"
    assert {engine: versions[0] for engine, versions in backend.engines.items()} == {
        "megatron_core": "0.20",
        "te": "2.20.2",
    }
