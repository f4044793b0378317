"""`precc_te.fake_quantize`: INT4 training in real models of Megatron's classes, and `attest` where it was forgotten."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from te import rounding_live as live
from te.engines import MEGATRONS, Judges, ask, job_of
from te.support import compiled, emitted, refusals

import precc
import precc_te
from precc import rules
from precc.backend import Unsupported
from precc.diagnostics import Severity
from precc.formats import Quantization
from precc_te import backend
from precc_te.upstream.wire import Layout

QAT = "@routed_experts: weight int4 group 32, train fake_quant\n"
WIDE = "@routed_experts: weight int4 group 128, train fake_quant\n"
ALL = "layers.*: weight int4 group 32, train fake_quant\n@router?: bf16\n"
SERVED = "@routed_experts: weight int4 group 32, train bf16\n"
INT4 = Quantization("int4", (1, 32), "bf16")
FC1 = "decoder.layers.3.mlp.experts.linear_fc1"
GROUPED, SEQUENTIAL = Layout(), Layout(grouped=False)

Asked = Callable[..., Any]


@pytest.fixture
def asked(judges: Judges, tmp_path: Path, small: dict[str, str]) -> Asked:
    """This asks a question of a live process that was started with the artifacts of a policy."""

    def ask_of(function: Any, policy: str, layout: Layout = GROUPED, core: str = "0.16.1", **more: Any) -> Any:
        model = small[more.pop("model", "sparse")]
        contract = compiled(policy, model)
        job = job_of(contract, emitted(contract), tmp_path, layout)
        given = {name: compiled(each, model) if name == "rounds" and each else each for name, each in more.items()}
        return ask(judges(core).worker, function, job, contract=contract, **given)

    return ask_of


@pytest.mark.parametrize(
    "layout, core, dtype, policy",
    [
        (GROUPED, "0.16.1", "bfloat16", QAT),
        (GROUPED, "0.19.2", "float32", WIDE),
        (SEQUENTIAL, "0.16.1", "float32", QAT),
        (SEQUENTIAL, "0.19.2", "bfloat16", WIDE),
    ],
)
def test_the_forward_reads_the_bits_that_the_export_stores(
    layout: Layout, core: str, dtype: str, policy: str, asked: Asked
) -> None:
    """Of each expert, gate over up: what the live export's INT4 dequantizes to. Names and parameters stay."""
    found = asked(live.forward_and_export, policy, layout, core, changes={}, dtype=dtype)
    assert found["count"] == len(found["agree"]) == 12 * 2 * 2
    assert all(found["agree"].values())
    assert found["kept"]


@pytest.mark.parametrize("layout", [GROUPED, SEQUENTIAL], ids=str)
def test_transformer_engines_own_method_takes_the_rounded_weight(layout: Layout, asked: Asked) -> None:
    """The method that its forward calls, from the installed source: it reads attributes, not parameters."""
    found = asked(live.upstream_reads, QAT, layout)
    assert len(found) == 2 * (1 if layout.grouped else 2)
    assert all(found.values())


def test_the_gradient_reaches_the_weight_in_full(asked: Asked) -> None:
    """Straight through to the parameter, which an optimizer moves and a checkpoint restores; nothing is fused there."""
    found = asked(live.gradients, QAT)
    assert found == {"arrived": True, "moved": True, "loaded": True, "not fused": 12 * 2}


@pytest.mark.parametrize("core", MEGATRONS)
@pytest.mark.parametrize("layout", [GROUPED, SEQUENTIAL, Layout(pp=2, vpp=2)], ids=str)
def test_a_model_that_rounds_as_its_contract_says_is_attested(layout: Layout, core: str, asked: Asked) -> None:
    """Every layout of experts, and a stage of two chunks that are wrapped."""
    assert asked(live.attested, QAT, layout, core, rounds=QAT, wrapped=layout.vpp > 1) == []


def test_every_linear_layer_can_round(asked: Asked) -> None:
    """Attention, dense layers, shared experts and MTP: what has a module with weights of its own."""
    assert asked(live.attested, ALL, rounds=ALL, model="latent") == []
    assert asked(live.attested, ALL, rounds=ALL, model="dense") == []


@pytest.mark.parametrize("layout", [GROUPED, SEQUENTIAL], ids=str)
def test_a_forgotten_call_is_told(layout: Layout, asked: Asked) -> None:
    """One finding a kind of layer: a weight of it, how many more, what the contract says, and the call to make."""
    one, two = asked(live.attested, QAT, layout)
    middle = "linear_fc1.weight0" if layout.grouped else "local_experts.0.linear_fc1.weight"
    assert one.startswith(
        f"P511: `decoder.layers.0.mlp.experts.{middle}` (and 23 more weights) is not rounded in the forward; "
    )
    assert "the contract says rounded to int4 group 32 from bfloat16 for `model.layers.{0..11}.mlp.experts" in one
    assert "linear_fc2" in two


def test_a_rounding_that_the_contract_has_not_is_told(asked: Asked) -> None:
    """Under a contract that serves INT4 and trains in BF16; and outside the linear layers."""
    one, two = asked(live.attested, SERVED, rounds=QAT)
    assert "(and 23 more weights) is rounded to int4 group 32 from bfloat16 in the forward; " in one
    assert "the contract says not rounded for `model.layers.{0..11}.mlp.experts" in two
    router = (("decoder.layers.3.mlp.router", "weight", INT4, {"stored": "bfloat16"}),)
    (found,) = asked(live.attested, QAT, rounds=QAT, more=router)
    assert found.startswith("P511: `decoder.layers.3.mlp.router.weight` is rounded to int4 group 32")


OTHERWISE: dict[str, tuple[str, Quantization, dict[str, Any], str]] = {
    "another group": (
        "weight0",
        Quantization("int4", (1, 128), "bf16"),
        {},
        "rounded to int4 group 128 from bfloat16 in",
    ),
    "another axis": ("weight0", INT4, {"axis": 0}, "rounded to int4 group 32 from bfloat16 along axis 0 in"),
    "another dtype": ("weight0", INT4, {"stored": "float16"}, "rounded to int4 group 32 from float16 in"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_another_rounding_is_told(name: str, asked: Asked) -> None:
    """Where a trainer registers torch's parametrization itself: one weight of one layer is enough."""
    weight, spec, options, said = OTHERWISE[name]
    messages = asked(live.attested, QAT, more=((FC1, weight, spec, options),))
    assert [message for message in messages if message.startswith(f"P511: `{FC1}.{weight}` is {said}")]


def test_torchs_own_parametrization_is_recognised(asked: Asked) -> None:
    """All weights of all layers but one registered by hand: that one is told."""
    layers = [f"decoder.layers.{layer}.mlp.experts.linear_fc{side}" for layer in range(12) for side in (1, 2)]
    by_hand = [(layer, f"weight{expert}", INT4, {}) for layer in layers for expert in (0, 1)]
    assert asked(live.attested, QAT, more=tuple(by_hand)) == []
    (message,) = asked(live.attested, QAT, more=tuple(by_hand[1:]))
    assert message.startswith("P511: `decoder.layers.0.mlp.experts.linear_fc1.weight0` is not rounded")


REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "a group that crosses a shard": (
        {"changes": {"moe_ffn_hidden_size": 48}},
        "`decoder.layers.0.mlp.experts.linear_fc2.weight0` has 48 columns on this rank: a group of 32",
    ),
    "delayed gradients": ({"changes": {}, "delayed": True}, "leave --delay-wgrad-compute out"),
    "no such layer": (
        {"changes": {"moe_layer_freq": [1] * 11 + [0]}},
        "the model has no linear layer for `model.layers.11.mlp.experts",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_round_is_refused_untouched(name: str, asked: Asked) -> None:
    """What, where, and what to do; no layer rounds after it."""
    given, said = REFUSED[name]
    message, rounding = asked(live.refused, QAT, **given)
    assert said in message
    assert rounding == 0


def test_a_second_call_is_refused(asked: Asked) -> None:
    """It would round what is rounded."""
    message, rounding = asked(live.refused, QAT, changes={}, twice=True)
    assert message == "`decoder.layers.0.mlp.experts.linear_fc1` rounds its weights already: call this once"
    assert rounding == 12 * 2


def test_what_is_no_model_is_refused() -> None:
    """The caller passed something else."""
    with pytest.raises(TypeError, match="a dict is no GPTModel of Megatron-Core"):
        precc_te.fake_quantize({}, compiled(QAT, "qwen3-30b-a3b"))


def test_the_code_of_the_page_makes_the_call(asked: Asked, small: dict[str, str], tmp_path: Path) -> None:
    """As it stands there, over a real model and a compiled folder: refused before it, attested after it."""
    page = (Path(__file__).parents[2] / "docs" / "converting.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python file=prepare\.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "qat.prec").write_text(QAT, encoding="utf-8")
    words = ["compile", "qat.prec", "--model", small["sparse"], "--target", "te", "-o", "out"]
    subprocess.run([sys.executable, "-m", "precc", *words], cwd=tmp_path, check=True, capture_output=True)
    before, after = asked(live.page, QAT, text=code, folder=str(tmp_path))
    assert len(before) == 2
    assert after == []


def test_a_compile_names_the_tensors_and_the_call() -> None:
    """As information at the rule, and where a reader of the recipes looks; nothing is said of what only serves INT4."""
    contract = compiled(QAT, "qwen3-30b-a3b")
    (found,) = rules.check_backend(backend.rules, contract)
    assert (found.code, found.severity) == ("P703", Severity.INFO)
    assert found.message.startswith("`model.layers.{0..47}.mlp.experts.{0..127}.{down,gate,up}_proj` (18,432 tensors)")
    assert "`precc_te.fake_quantize(model, contract)`" in (found.help or "")
    assert found.span is not None
    recipes = emitted(contract)["te/te_precision.yaml"]
    assert "# In BF16, and rounded by the job, which calls precc_te.fake_quantize(model, contract):\n" in recipes
    served = compiled(SERVED, "qwen3-30b-a3b")
    assert list(rules.check_backend(backend.rules, served)) == []
    assert "fake_quantize" not in emitted(served)["te/te_precision.yaml"]


def test_the_ready_policy_says_what_the_job_has_to_do() -> None:
    """`int4_qat` compiles, and is the policy that would drift in silence."""
    contract = precc.compile("int4_qat", "qwen3-30b-a3b")
    assert [finding.code for finding in rules.check_backend(backend.rules, contract)] == ["P703"]


def test_what_no_layer_rounds_is_refused() -> None:
    """The output layer is no linear layer of TransformerEngine: INT4 there would be served and never trained."""
    (found,) = refusals(compiled("lm_head: weight int4, train fake_quant\n", "qwen3-30b-a3b"))
    assert found.code == "P701"
    assert "where no forward is made to round a weight" in found.message


def test_tensors_of_one_layer_round_alike() -> None:
    """Gate and up are one weight in Megatron, though both run in BF16 there."""
    contract = compiled("experts.*: weight int4 group 32, train fake_quant\n", "qwen3-30b-a3b")
    other = replace(contract.entries[0].decision, weight=Quantization("int4", (1, 64), "bf16"), train="fake_quant")
    entries = [
        replace(e, decision=other) if e.tensor.part == "up" and e.tensor.layer == 3 else e for e in contract.entries
    ]
    with pytest.raises(Unsupported) as refusal:
        backend.emit(replace(contract, entries=tuple(entries)))
    assert {finding.code for finding in refusal.value.findings} == {"P201"}


@pytest.mark.parametrize("etp, fits", [(2, True), (4, False)])
def test_a_group_that_ends_in_another_shard_is_refused_when_compiling(etp: int, fits: bool) -> None:
    """An expert's `down_proj` of 768 columns: 192 on each of four ranks hold no whole groups of 128."""
    found = rules.check_contract(compiled(WIDE, "qwen3-30b-a3b", f"etp={etp}"))
    told = [finding for finding in found if finding.code == "P302"]
    assert [finding.message.partition(": ")[2] for finding in told] == (
        [] if fits else ["768 / 4 = 192 is not a multiple of the 128-element block of int4"]
    )
