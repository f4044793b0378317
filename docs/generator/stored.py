"""What a checkpoint holds for one weight in each format, and how SGLang is told: compiled, not claimed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from generator.tables import table
from precc.api import compile_source, emit
from precc.source import SourceFile

MODEL = "qwen3-30b-a3b"
_LINES = (
    "experts.*: mxfp8",
    "experts.*: fp8_block",
    "experts.*: weight fp8 per_channel, input fp8 per_token",
    "experts.*: nvfp4 per_token",
    "experts.*: weight nvfp4, input bf16",
    "experts.*: int4 group 32",
    "experts.*: int4 group 128",
)


def stored() -> str:
    """One row a decision: the stored tensors of one expert's `up_proj`, and the method that serves them."""
    return table(("decision", "`quant_method`", "stored for a weight", ">bits a weight"), map(_row, _LINES))


def _row(line: str) -> tuple[str, ...]:
    source = SourceFile("stored.prec", f"targets: sglang, converter\n{line}\n")
    contract = compile_source(source, MODEL)
    plan = json.loads(_text(contract, "converter", "plan.json"))
    written = next(each for each in plan["tensors"] if each["tensor"].endswith("up_proj.weight"))
    served = json.loads(_text(contract, "sglang", "quantization_config.json"))
    tensors = "<br>".join(map(_tensor, written["outputs"]))
    weights = written["count"] * _size(written["sources"][0]["shape"])
    decision = line.partition(": ")[2]
    return f"`{decision}`", _method(served), tensors, f"{8 * written['bytes'] / weights:.3f}"


def _text(contract: Any, target: str, name: str) -> str:
    return next((each.text for each in emit(contract, target) if each.path.endswith(name)), "{}")


def _method(served: Mapping[str, Any]) -> str:
    words = [served.get("quant_method"), served.get("quant_algo") or served.get("format")]
    return " ".join(f"`{word}`" for word in words if word) or "none"


def _tensor(output: Mapping[str, Any]) -> str:
    shape = " × ".join(map(str, output["shape"])) or "one value"
    return f"`{output['name'].rpartition('.')[2]}` {output['dtype']} {shape}"


def _size(shape: list[int]) -> int:
    return shape[0] * shape[1]
