"""What happens to a plan that was changed after it was written: every change is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from converter.contracts import TWO_LINES, compiled, emitted, findings, line_of, plan_findings, recounted

from precc.contract import Contract
from precc_converter import backend
from precc_converter.plan import plan_text

Plan = dict[str, Any]
DOWN = "experts.{0..127}.down_proj.weight"
UP = "experts.{0..127}.up_proj.weight"
FIRST = "model.layers.{0..47}.mlp."


@pytest.fixture(scope="module")
def contract() -> Contract:
    """Experts in NVFP4, the rest in BF16."""
    return compiled(TWO_LINES, "qwen3-30b-a3b")


@pytest.fixture
def plan(contract: Contract) -> Plan:
    """Its plan, to be changed."""
    return deepcopy(emitted(contract))


def test_an_unchanged_plan_has_no_findings(contract: Contract, plan: Plan) -> None:
    """Parsing and laying out again changes nothing."""
    assert plan_findings(contract, plan) == ()
    assert plan_text(plan) == backend.emit(contract)[0].text


def _format(plan: Plan) -> None:
    line_of(plan, DOWN)["quantizer"]["format"] = "mxfp8"


def _block(plan: Plan) -> None:
    line_of(plan, DOWN)["quantizer"]["block"] = [16, 16]


def _axis(plan: Plan) -> None:
    line_of(plan, DOWN)["quantizer"]["axis"] = 0


def _four_over_six(plan: Plan) -> None:
    line_of(plan, DOWN)["quantizer"]["four_over_six"] = {"error": "mae", "max": 256}


def _scale_name(plan: Plan) -> None:
    output = line_of(plan, DOWN)["outputs"][1]
    output["name"] = output["name"] + "_inv"


def _scale_of_others(plan: Plan) -> None:
    output = line_of(plan, DOWN)["outputs"][1]
    output["name"] = output["name"].replace("down_proj", "up_proj")


def _scale_of_other_experts(plan: Plan) -> None:
    output = line_of(plan, DOWN)["outputs"][1]
    output["name"] = output["name"].replace("{0..127}", "{0..126}")


def _dtype(plan: Plan) -> None:
    line_of(plan, DOWN)["outputs"][1]["dtype"] = "U8"


def _shape(plan: Plan) -> None:
    line_of(plan, DOWN)["outputs"][0]["shape"] = [384, 2048]


def _source(plan: Plan) -> None:
    line_of(plan, DOWN)["sources"][0]["name"] = line_of(plan, UP)["sources"][0]["name"]


def _action(plan: Plan) -> None:
    line_of(plan, "model.norm.weight")["action"] = "cast"


def _own_outer_scale(plan: Plan) -> None:
    del line_of(plan, UP)["outer_scale_of"]


def _other_outer_scale(plan: Plan) -> None:
    line = line_of(plan, UP)
    line["outer_scale_of"] = line["outer_scale_of"].replace("{0..127}", "0")


@pytest.mark.parametrize(
    "change, count",
    [
        (_format, 1),
        (_block, 1),
        (_axis, 1),
        (_four_over_six, 1),
        (_scale_name, 1),
        (_scale_of_others, 1),
        (_scale_of_other_experts, 1),
        (_dtype, 1),
        (_shape, 1),
        (_source, 1),
        (_action, 1),
        (_own_outer_scale, 48),
        (_other_outer_scale, 48),
    ],
)
def test_a_line_that_converts_otherwise_is_p501(
    contract: Contract, plan: Plan, change: Callable[[Plan], None], count: int
) -> None:
    """One finding for all layers, or one for each whose outer scale has a name of its own; both sides are named."""
    change(plan)
    found = plan_findings(contract, recounted(plan))
    assert [finding.code for finding in found] == ["P501"] * count
    assert "the contract says" in found[0].message
    assert "converter/plan.json: model." in (found[0].help or "")


def _dropped(plan: Plan) -> None:
    plan["tensors"].remove(line_of(plan, UP))


def _fewer_layers(plan: Plan) -> None:
    _renamed(line_of(plan, UP), "{0..47}", "{0..46}", 47 * 128)


def _fewer_experts(plan: Plan) -> None:
    _renamed(line_of(plan, UP), "{0..127}", "{0..126}", 48 * 127)


def _more_experts(plan: Plan) -> None:
    _renamed(line_of(plan, UP), "{0..127}", "{0..128}", 48 * 129)


def _repeated(plan: Plan) -> None:
    plan["tensors"].append(deepcopy(line_of(plan, UP)))


def _overlapping(plan: Plan) -> None:
    again = deepcopy(line_of(plan, UP))
    _renamed(again, "{0..47}", "{9..11}", 3 * 128)
    plan["tensors"].append(again)


def _invented(plan: Plan) -> None:
    again = deepcopy(line_of(plan, "model.norm.weight"))
    for item in (*again["sources"], *again["outputs"]):
        item["name"] = "model.norm2.weight"
    again["tensor"] = "model.norm2.weight"
    plan["tensors"].append(again)


def _renamed(line: Plan, old: str, new: str, count: int) -> None:
    line["tensor"] = line["tensor"].replace(old, new)
    if "outer_scale_of" in line:
        line["outer_scale_of"] = line["outer_scale_of"].replace(old, new)
    for item in (*line["sources"], *line["outputs"]):
        item["name"] = item["name"].replace(old, new)
    line["bytes"] = line["bytes"] // line["count"] * count
    line["count"] = count


@pytest.mark.parametrize(
    "change, said",
    [
        (_dropped, "does not convert 6144 tensors, of model.layers.0.mlp.experts.{0..127}.up_proj.weight"),
        (
            _fewer_layers,
            "does not convert 128 tensors, of model.layers.47.mlp.experts.{0..127}.up_proj.weight",
        ),
        (
            _fewer_experts,
            "does not convert 48 tensors, of model.layers.0.mlp.experts.{0..127}.up_proj.weight",
        ),
        (_more_experts, f"does not have: 48 tensors, of {FIRST}experts.{{0..128}}.up_proj.weight"),
        (_repeated, f"converts {FIRST}{UP} twice"),
        (_overlapping, "converts model.layers.{9..11}.mlp.experts.{0..127}.up_proj.weight twice"),
        (_invented, "does not have: 1 tensors, of model.norm2.weight"),
    ],
)
def test_a_tensor_that_is_left_out_repeated_or_invented_is_p603(
    contract: Contract, plan: Plan, change: Callable[[Plan], None], said: str
) -> None:
    """Ranges are compared as ranges, and the finding names the tensors."""
    change(plan)
    found = plan_findings(contract, recounted(plan))
    assert {finding.code for finding in found} == {"P603"}
    assert any(said in finding.message for finding in found), [finding.message for finding in found]


def test_experts_converted_in_two_ways_are_shown_with_both(contract: Contract, plan: Plan) -> None:
    """One entry of the contract, two lines of the plan, one of them wrong."""
    other = deepcopy(line_of(plan, DOWN))
    _renamed(line_of(plan, DOWN), "{0..127}", "{0..63}", 48 * 64)
    _renamed(other, "{0..127}", "{64..127}", 48 * 64)
    plan["tensors"].append(other)
    assert plan_findings(contract, recounted(plan)) == ()
    other["quantizer"]["scale"] = "e8m0"
    (found,) = plan_findings(contract, recounted(plan))
    assert found.code == "P501"
    assert "experts.{0..63}.down" in found.message
    assert "experts.{64..127}.down" in found.message


def _wrong(**changes: Any) -> Callable[[Plan], None]:
    return lambda plan: plan.update(changes)


def _line_with(**changes: Any) -> Callable[[Plan], None]:
    return lambda plan: line_of(plan, DOWN).update(changes)


MALFORMED: dict[str, Callable[[Plan], None]] = {
    "another version": _wrong(version=2),
    "no tensors": lambda plan: plan.pop("tensors"),
    "tensors are no list": _wrong(tensors=7),
    "a line is no object": _wrong(tensors=["x"]),
    "wrong totals": lambda plan: plan["totals"].update(bytes=1),
    "no totals": lambda plan: plan.pop("totals"),
    "another contract in the shards": lambda plan: plan["metadata"].update(precc_contract="0" * 64),
    "other shards": lambda plan: plan["shards"].update(max_bytes=7),
    "another order of shards": lambda plan: plan["shards"].update(order="any"),
    "a further word about shards": lambda plan: plan["shards"].update(compress=True),
    "further metadata": lambda plan: plan["metadata"].update(format="np"),
    "another architecture": lambda plan: plan["model"].update(architecture="LlamaForCausalLM"),
    "a further fact": _wrong(dtype="fp16"),
    "a further word about a tensor": _line_with(dtype="fp16"),
    "a format beside a quantizer": _line_with(format="bf16"),
    "a further setting of a quantizer": lambda plan: line_of(plan, DOWN)["quantizer"].update(rounding="up"),
    "a further word about an output": lambda plan: line_of(plan, DOWN)["outputs"][0].update(offset=8),
    "a shape in words": lambda plan: line_of(plan, DOWN)["outputs"][0].update(shape=["2048", "384"]),
    "a changed count": _line_with(count=6143),
    "changed bytes": _line_with(bytes=1),
    "an unknown action": _line_with(action="guess"),
    "a list for a format": _line_with(quantizer={"profile": "te", "format": [], "axis": 1}),
    "an unknown format": _line_with(quantizer={"profile": "te", "format": "fp3", "axis": 1}),
    "another profile": _line_with(quantizer={"profile": "fast", "format": "nvfp4", "axis": 1}),
    "an unknown dtype": lambda plan: line_of(plan, DOWN)["outputs"][0].update(dtype="F8_E5M2"),
    "an infinite shape": lambda plan: line_of(plan, DOWN)["outputs"][0].update(shape=[float("inf")]),
    "an empty range": _line_with(tensor="model.layers.{7..3}.mlp.gate.weight"),
    "no name": _line_with(tensor=""),
    "a broken range": _line_with(tensor="model.layers.{0..}.weight"),
    "an endless range": _line_with(tensor=f"model.layers.{{0..{10**30}}}.weight"),
}


@pytest.mark.parametrize("problem", MALFORMED)
def test_what_is_no_plan_is_one_p502(contract: Contract, plan: Plan, problem: str) -> None:
    """One finding that names the file, never a traceback."""
    MALFORMED[problem](plan)
    (finding,) = findings(contract, json.dumps(plan))
    assert finding.code == "P502"
    assert finding.message.startswith("converter/plan.json is no plan that the converter follows: ")


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "[" * 100_000, '{"version": 1}', "\ud800"])
def test_text_that_is_no_json_object_is_one_p502(contract: Contract, text: str) -> None:
    """Also deep nesting and lone surrogates."""
    assert [finding.code for finding in findings(contract, text)] == ["P502"]


def test_a_missing_plan_is_p502(contract: Contract) -> None:
    """As the protocol says for an artifact that is not there."""
    from precc.backend import Unsupported

    with pytest.raises(Unsupported) as refusal:
        backend.read_back(contract, {})
    assert [finding.code for finding in refusal.value.findings] == ["P502"]


def test_the_plan_of_another_contract_is_refused(contract: Contract) -> None:
    """Even where it converts every tensor as this contract wants: the digest is that of the decisions."""
    other = compiled(f"{TWO_LINES}kv_cache: fp8\n", "qwen3-30b-a3b")
    (finding,) = plan_findings(contract, emitted(other))
    assert finding.code == "P502"
    assert "it belongs to another contract" in finding.message


def test_the_labels_of_a_plan_are_free(contract: Contract, plan: Plan) -> None:
    """Nothing follows from the names of the policy and the model."""
    plan["policy"] = plan["model"]["name"] = "other"
    assert plan_findings(contract, plan) == ()
