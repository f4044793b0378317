"""Corruptions of `converter/plan.json`. Sums are made to agree again: only what a line says is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from precc_converter.plan import plan_text

from .edits import Change, Mutation, Place, in_json, removed, replaced

PLAN = "converter/plan.json"

WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4, "I64": 8}
OTHER_DTYPE = {"BF16": "F32", "F32": "BF16", "F8_E4M3": "U8", "U8": "F8_E4M3", "I32": "U8", "I64": "I32"}


def in_plan(change: Change) -> Mutation:
    """A change of the plan, its sums recounted."""
    return in_json(PLAN, lambda content: map(recounted, change(content)), plan_text)


def recounted(plan: Any) -> Any:
    """The plan with the bytes of each line, and the totals, as its lines now add up."""
    for line in plan["tensors"]:
        each = sum(WIDTHS[output["dtype"]] * prod(output["shape"]) for output in line["outputs"])
        line["bytes"] = line["count"] * each
    plan["totals"] = {
        "tensors_in": sum(line["count"] * len(line["sources"]) for line in plan["tensors"]),
        "tensors_out": sum(line["count"] * len(line["outputs"]) for line in plan["tensors"]),
        "bytes": sum(line["bytes"] for line in plan["tensors"]),
    }
    return plan


# --- places ------------------------------------------------------------------------------------------


def _lines(plan: Any, action: str = "") -> Iterator[tuple[Place, dict[str, Any]]]:
    for number, line in enumerate(plan["tensors"]):
        if line["action"].startswith(action):
            yield ("tensors", number), line


def _stored(plan: Any, kind: str) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The sources or outputs of quantized lines; of all lines where nothing is quantized."""
    for place, line in _lines(plan):
        if "quantizer" in line:
            yield from (((*place, kind, at), item) for at, item in enumerate(line[kind]))


def _each(kind: str, key: str, other: Callable[[Any], Any]) -> Change:
    """One word of every stored tensor of a quantized line, made another."""

    def change(plan: Any) -> Iterator[Any]:
        for place, item in _stored(plan, kind):
            changed = other(item[key])
            if changed != item[key]:
                yield replaced(plan, (*place, key), changed)

    return change


def _quantizer(key: str, *values: Any) -> Change:
    """Other values of one setting of every quantizer that has it."""

    def change(plan: Any) -> Iterator[Any]:
        for place, line in _lines(plan):
            held = line.get("quantizer", {})
            for value in values:
                if key in held and held[key] != value:
                    yield replaced(plan, (*place, "quantizer", key), value)

    return change


# --- names, dtypes, shapes ---------------------------------------------------------------------------


def _scale_renamed(plan: Any) -> Iterator[Any]:
    for place, item in _stored(plan, "outputs"):
        if "scale" in item["name"]:
            for name in (item["name"] + "x", item["name"].replace("_scale_inv", "_scale"), _other_projection(item)):
                if name != item["name"]:
                    yield replaced(plan, (*place, "name"), name)


def _other_projection(item: dict[str, Any]) -> str:
    name: str = item["name"]
    return name.replace("down_proj", "up_proj").replace("o_proj", "q_proj")


def _scale_dropped(plan: Any) -> Iterator[Any]:
    for place, item in _stored(plan, "outputs"):
        if "scale" in item["name"]:
            yield removed(plan, place)


def _transposed(shape: list[int]) -> list[int]:
    return shape[::-1]


def _doubled(shape: list[int]) -> list[int]:
    return [*shape[:-1], shape[-1] * 2] if shape else [1]


# --- whole lines -------------------------------------------------------------------------------------


def _flipped(plan: Any) -> Iterator[Any]:
    """A line converted as another one of the same shape is."""
    lines = list(_lines(plan))
    for place, line in lines:
        others = (other for _, other in lines if _shape(other) == _shape(line) and _made(other) != _made(line))
        other = next(others, None)
        if other is not None:
            yield replaced(plan, place, _as_other(line, other))


def _shape(line: dict[str, Any]) -> Any:
    return line["sources"][0]["shape"]


def _made(line: dict[str, Any]) -> Any:
    return line.get("quantizer", line.get("format"))


def _as_other(line: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    stem, there = line["tensor"].rpartition(".")[0], other["tensor"].rpartition(".")[0]
    outputs = [{**output, "name": output["name"].replace(there, stem)} for output in other["outputs"]]
    kept: dict[str, Any] = {key: other[key] for key in ("action", "quantizer", "format") if key in other}
    return {"tensor": line["tensor"], "count": line["count"], **kept, "sources": line["sources"], "outputs": outputs}


def _unquantized(plan: Any) -> Iterator[Any]:
    for place, line in _lines(plan):
        if "quantizer" in line:
            source = line["sources"][0]
            made: dict[str, Any] = {
                "tensor": line["tensor"],
                "count": line["count"],
                "action": "copy",
                "format": "bf16",
            }
            outputs = [{"name": line["tensor"], "dtype": source["dtype"], "shape": source["shape"]}]
            yield replaced(plan, place, {**made, "sources": line["sources"][:1], "outputs": outputs})


def _dropped(plan: Any) -> Iterator[Any]:
    yield from (removed(plan, place) for place, _ in _lines(plan))


def _again(plan: Any) -> Iterator[Any]:
    yield from (replaced(plan, ("tensors",), [*plan["tensors"], line]) for _, line in _lines(plan))


def _reordered(plan: Any) -> Iterator[Any]:
    yield replaced(plan, ("tensors",), plan["tensors"][::-1])


def _fewer_experts(plan: Any) -> Iterator[Any]:
    for place, line in _lines(plan):
        if "experts.{0..3}" in line["tensor"]:
            fewer = json.loads(json.dumps(line).replace("experts.{0..3}", "experts.{0..2}"))
            yield replaced(plan, place, {**fewer, "count": line["count"] // 4 * 3})


def _count(plan: Any) -> Iterator[Any]:
    yield from (replaced(plan, (*place, "count"), line["count"] + 1) for place, line in _lines(plan))


def _group(plan: Any) -> Iterator[Any]:
    for place, line in _lines(plan):
        if "outer_scale_of" in line:
            yield removed(plan, (*place, "outer_scale_of"))
            yield replaced(plan, (*place, "outer_scale_of"), line["tensor"].replace("up_proj", "down_proj"))


def _own_group(plan: Any) -> Iterator[Any]:
    for place, line in _lines(plan, "quantize"):
        if line["quantizer"]["format"] == "nvfp4" and "outer_scale_of" not in line:
            other = line["tensor"].replace("down_proj", "up_proj").replace("gate_proj", "down_proj")
            yield replaced(plan, (*place, "outer_scale_of"), other)


def _top(place: Place, *values: Any) -> Mutation:
    return in_json(PLAN, lambda plan: (replaced(plan, place, value) for value in values), plan_text)


MUTATIONS: dict[str, Mutation] = {
    "a scale tensor is renamed": in_plan(_scale_renamed),
    "a scale tensor is left out": in_plan(_scale_dropped),
    "an output is renamed": in_plan(_each("outputs", "name", lambda name: f"{name}.x")),
    "an output of another dtype": in_plan(_each("outputs", "dtype", OTHER_DTYPE.__getitem__)),
    "an output transposed": in_plan(_each("outputs", "shape", _transposed)),
    "an output twice as wide": in_plan(_each("outputs", "shape", _doubled)),
    "a source is renamed": in_plan(_each("sources", "name", lambda name: f"{name}.x")),
    "a source of another dtype": in_plan(_each("sources", "dtype", OTHER_DTYPE.__getitem__)),
    "a source of another shape": in_plan(_each("sources", "shape", _transposed)),
    "a format is flipped": in_plan(_flipped),
    "a tensor is left unquantized": in_plan(_unquantized),
    "the quantizer's format alone": in_plan(_quantizer("format", "mxfp8", "nvfp4", "fp8_block")),
    "the quantizer's axis": in_plan(_quantizer("axis", 0)),
    "the quantizer's block": in_plan(_quantizer("block", [16, 16], [1, 64])),
    "the quantizer's scale": in_plan(_quantizer("scale", "e4m3", "e8m0", "fp32")),
    "the quantizer's profile": in_plan(_quantizer("profile", "fast")),
    "the quantizer's four-over-six": in_plan(_quantizer("four_over_six", None, {"error": "mse", "max": 448})),
    "an outer scale of its own, or of others": in_plan(_group),
    "an outer scale shared": in_plan(_own_group),
    "a line is dropped": in_plan(_dropped),
    "a line stands twice": in_plan(_again),
    "lines in another order": in_plan(_reordered),
    "one expert fewer": in_plan(_fewer_experts),
    "a count": in_plan(_count),
    "a total": _top(("totals", "bytes"), 1),
    "another rule for shards": _top(("shards", "max_bytes"), 1_000_000),
    "other metadata": _top(("metadata", "format"), "np"),
    "another architecture": _top(("model", "architecture"), "OlmoeForCausalLM"),
    "another version": _top(("version",), 2),
}
