"""What the plan says: names, dtypes, actions, sizes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from converter.contracts import END_TO_END_MXFP8, TWO_LINES, compiled, decided, emitted, line_of

from precc import pipeline
from precc.contract import Contract, contract_from_json, contract_to_json
from precc.formats import Decision, FourOverSix, Quantization
from precc.graph.forms import Form
from precc.graph.reading import read_model
from precc_converter import backend
from precc_converter.plan import PLAN_PATH

GOLDEN = Path(__file__).parent / "golden"
SERVED: dict[str, str] = {
    "two lines": TWO_LINES,
    "mxfp8": END_TO_END_MXFP8,
    "fp8 blocks": "default: fp8_block\n@mla?: bf16\n",
    "fp8 tensors": "default: fp8\n@mla?: bf16\n",
    "int4": "@routed_experts?, @dense_mlp?: weight int4 group 32, train bf16\n",
    "mixed": "default: mxfp8\n@mla?: bf16\n@routed_experts?: nvfp4 per_token\nlayers[:2]: bf16\n",
}


@pytest.mark.parametrize(
    "policy, model", [("two_lines", "qwen3-30b-a3b"), ("end_to_end_mxfp8", "deepseek-v3")], ids=str
)
def test_the_plan_is_the_golden_one(policy: str, model: str) -> None:
    """Names and dtypes are those that SGLang loads; the contract's digest is left out of the golden file."""
    contract = compiled({"two_lines": TWO_LINES, "end_to_end_mxfp8": END_TO_END_MXFP8}[policy], model)
    (artifact,) = backend.emit(contract)
    golden = (GOLDEN / f"{policy}-{model}.json").read_text(encoding="utf-8")
    assert artifact.text.replace(contract.digest, "DIGEST") == golden


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3", "qwen3-8b", "glm-4.5"])
@pytest.mark.parametrize("policy", SERVED)
def test_every_tensor_reads_back_as_decided(policy: str, model: str) -> None:
    """Emit, read the text by names, compare with the contract: every tensor agrees."""
    contract = compiled(SERVED[policy], model)
    artifacts = {artifact.path: artifact.text for artifact in backend.emit(contract)}
    verified = pipeline.read_back(contract, backend, artifacts)
    assert (verified.agree, verified.findings) == (verified.tensors, ())
    assert verified.tensors == sum(tensor.count for tensor in contract.model.tensors)


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "deepseek-v3"])
@pytest.mark.parametrize("policy", SERVED)
def test_totals_are_those_of_the_checkpoint_and_the_contract(policy: str, model: str) -> None:
    """All stored tensors go in; what comes out are the stored bits."""
    contract = compiled(SERVED[policy], model)
    totals = emitted(contract)["totals"]
    assert totals["tensors_in"] == contract.model.stored_tensors
    assert 8 * totals["bytes"] == sum(e.stored_bits for e in contract.entries)


@pytest.mark.parametrize("experts", [256, 2560, 25600])
def test_the_plan_is_as_long_for_any_number_of_experts(experts: int, tmp_path: Path) -> None:
    """Ranges are never expanded: only numbers grow."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**_qwen_config(), "num_experts": experts}), encoding="utf-8")
    contract = compiled(TWO_LINES, str(path))
    few = emitted(compiled(TWO_LINES, "qwen3-30b-a3b"))
    many = emitted(contract)
    assert contract.model.expert_count == experts
    assert len(many["tensors"]) == len(few["tensors"])
    assert line_of(many, "up_proj.weight")["count"] == 48 * experts


def _qwen_config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "tie_word_embeddings": False,
    }


ROUTED = "model.layers.{0..47}.mlp.experts.{0..127}.down_proj"
STORED = {
    "default: mxfp8": {"weight": ("F8_E4M3", [2048, 768]), "weight_scale_inv": ("U8", [2048, 24])},
    "default: fp8_block": {"weight": ("F8_E4M3", [2048, 768]), "weight_scale_inv": ("F32", [16, 6])},
    "default: fp8": {"weight": ("F8_E4M3", [2048, 768]), "weight_scale": ("F32", [])},
    "default: weight fp8 per_channel, input fp8 per_token": {
        "weight": ("F8_E4M3", [2048, 768]),
        "weight_scale": ("F32", [2048, 1]),
    },
    TWO_LINES: {
        "weight": ("U8", [2048, 384]),
        "weight_scale": ("F8_E4M3", [2048, 48]),
        "weight_scale_2": ("F32", []),
    },
    "@routed_experts: weight int4 group 128, train bf16": {
        "weight_packed": ("I32", [2048, 96]),
        "weight_shape": ("I64", [2]),
        "weight_scale": ("BF16", [2048, 6]),
    },
}


@pytest.mark.parametrize("policy", STORED)
def test_each_format_is_stored_under_the_names_its_server_reads(policy: str) -> None:
    """Names, dtypes and shapes of one expert, format by format."""
    line = line_of(emitted(compiled(policy, "qwen3-30b-a3b")), "experts.{0..127}.down_proj.weight")
    stored = {item["name"].removeprefix(f"{ROUTED}."): (item["dtype"], item["shape"]) for item in line["outputs"]}
    assert stored == STORED[policy]


def test_gate_and_up_of_an_expert_are_named_as_sharing_their_outer_scale() -> None:
    """Down has its own; members carry one name, with the same ranges as their own."""
    plan = emitted(compiled(TWO_LINES, "deepseek-v3"))
    groups = {
        part: line_of(plan, f"{{3..60}}.mlp.experts.{{0..255}}.{part}_proj.weight").get("outer_scale_of")
        for part in _PARTS
    }
    shared = "model.layers.{3..60}.mlp.experts.{0..255}.gate_up"
    assert groups == {"gate": shared, "up": shared, "down": None}


_PARTS = ("gate", "up", "down")


def _action(policy: str, model: str, name: str) -> str:
    return str(line_of(emitted(compiled(policy, model)), name)["action"])


def test_an_fp8_source_is_dequantized_where_the_contract_says_bf16() -> None:
    """Its scales go in and nothing but the BF16 weight comes out."""
    line = line_of(emitted(compiled(TWO_LINES, "deepseek-v3")), "{0..60}.self_attn.kv_b_proj.weight")
    assert line["action"] == "dequantize"
    assert [item["name"].rpartition(".")[2] for item in line["sources"]] == ["weight", "weight_scale_inv"]
    assert [item["dtype"] for item in line["outputs"]] == ["BF16"]


def test_what_is_no_gemm_is_copied_in_its_stored_dtype() -> None:
    """Norms stay BF16 and the router's correction bias FP32."""
    plan = emitted(compiled(TWO_LINES, "deepseek-v3"))
    bias = line_of(plan, "{3..60}.mlp.gate.e_score_correction_bias")
    assert (bias["action"], bias["outputs"][0]["dtype"]) == ("copy", "F32")
    assert line_of(plan, "model.norm.weight")["action"] == "copy"


@pytest.mark.parametrize(
    "policy, declared, action",
    [
        ("default: mxfp8\n@mla: bf16", True, "keep_fp8_as_mxfp8"),
        ("default: mxfp8\n@mla: bf16", False, "requantize"),
        ("default: fp8_block\n@mla: bf16", True, "copy"),
        ("default: fp8_block\n@mla: bf16", False, "requantize"),
        ("default: fp8_block scales fp32\n@mla: bf16", False, "copy"),
        ("default: nvfp4\n@mla: bf16", True, "requantize"),
    ],
)
def test_fp8_codes_are_kept_only_where_their_scales_are_of_the_decided_type(
    policy: str, declared: bool, action: str
) -> None:
    """A source that declares power-of-two scales is MXFP8 already; one that does not is dequantized first."""
    contract = compiled(policy, "deepseek-v3")
    config = {key: value for key, value in contract.model.config.items() if key != "scale_fmt"}
    facts = {**config, "scale_fmt": "ue8m0"} if declared else config
    line = line_of(
        emitted(replace(contract, model=replace(contract.model, config=facts))),
        "{3..60}.mlp.experts.{0..255}.down_proj.weight",
    )
    assert line["action"] == action


def test_a_wider_source_is_cast_and_four_over_six_is_planned() -> None:
    """Every parameter of the arithmetic stands in the plan."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    adaptive = Quantization("nvfp4", (1, 16), "e4m3", "per_tensor", FourOverSix("mse", 448))
    wide = decided(
        contract,
        lambda e: replace(
            e,
            tensor=replace(e.tensor, form=Form("fp32")),
            decision=replace(e.decision, weight=adaptive) if e.decision.is_quantized else e.decision,
        ),
    )
    plan = emitted(wide)
    assert line_of(plan, "lm_head.weight")["action"] == "cast"
    assert line_of(plan, "up_proj.weight")["quantizer"]["four_over_six"] == {"error": "mse", "max": 448}
    assert line_of(plan, "up_proj.weight")["sources"][0]["dtype"] == "F32"


def test_the_digest_stands_in_the_plan_and_in_the_metadata_of_every_shard() -> None:
    """So that a checkpoint can name the contract it was made for."""
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    plan = emitted(contract)
    assert plan["digest"] == plan["metadata"]["precc_contract"] == contract.digest


def test_a_stored_contract_gives_the_same_plan() -> None:
    """`contract.json` is all that planning needs."""
    contract = compiled(SERVED["mixed"], "deepseek-v3")
    again = contract_from_json(json.loads(json.dumps(contract_to_json(contract))))
    assert backend.emit(again)[0].text == backend.emit(contract)[0].text


CHOICES = (
    Decision(Quantization("bf16"), Quantization("bf16")),
    Decision(Quantization("mxfp8", (1, 32), "e8m0"), Quantization("mxfp8", (1, 32), "e8m0")),
    Decision(Quantization("nvfp4", (1, 16), "e4m3", "per_tensor"), Quantization("bf16")),
    Decision(Quantization("int4", (1, 32), "bf16"), Quantization("bf16")),
)


@pytest.mark.parametrize("seed", range(8))
def test_decisions_scattered_over_layers_and_experts_read_back(seed: int) -> None:
    """However a policy splits the experts of a layer, each range is converted once and as decided."""
    contract = _scattered(random.Random(seed))
    text = backend.emit(contract)[0].text
    verified = pipeline.read_back(contract, backend, {PLAN_PATH: text})
    assert (verified.agree, verified.findings) == (verified.tensors, ())
    assert verified.tensors == sum(tensor.count for tensor in read_model("qwen3-30b-a3b").tensors)


def _scattered(rng: random.Random) -> Contract:
    contract = compiled(TWO_LINES, "qwen3-30b-a3b")
    entries = []
    for entry in contract.entries:
        if not entry.tensor.is_gemm or entry.tensor.protected:
            entries.append(entry)
            continue
        cuts = sorted(rng.sample(range(1, 128), rng.choice((0, 0, 1, 3)))) if entry.tensor.experts else []
        for start, stop in zip([0, *cuts], [*cuts, 128], strict=True):
            tensor = entry.tensor.narrowed(range(start, stop)) if entry.tensor.experts else entry.tensor
            entries.append(replace(entry, tensor=tensor, decision=rng.choice(CHOICES)))
    model = replace(contract.model, tensors=tuple(entry.tensor for entry in entries))
    return replace(contract, model=model, entries=tuple(entries))
