"""`converter/plan.json`: one line for each run of layers and experts that are converted alike.

A plan never lists experts one by one, so its size follows from the policy and not from the model. Where each
output goes is a rule (`shards`), not a list: it depends on names and sizes alone, so every worker and every
resumed run arrives at the same files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from precc.backend import Unsupported
from precc.contract import Contract, Entry
from precc.contract.fold import LAYER, Folded, braced, fold
from precc.diagnostics import error
from precc.graph.model import EXPERT
from precc_converter.names import parse_name
from precc_converter.stored import form_to_json
from precc_converter.written import StoredTensor, Written, parts_stacks, written

PLAN_PATH = "converter/plan.json"
PLAN_VERSION = 1
PROFILE = "te"
"""The arithmetic of every quantizer named here; byte by byte that of the trainer's kernels."""

SHARD_BYTES = 5_000_000_000
SHARDS = {
    "max_bytes": SHARD_BYTES,
    "unit": "all outputs of one tensor, or of the tensors that share one outer scale; never split",
    "order": "units by their first name in natural order (numbers compared as numbers)",
    "fill": "a unit that does not fit under max_bytes starts the next shard",
}


def plan_of(contract: Contract) -> dict[str, Any]:
    """This is the content of the plan. Raises Unsupported for a tensor that cannot be read or written."""
    apart = parts_stacks(contract)
    lines = [_line(line, contract, apart) for line in fold(contract.entries, _alike(contract, apart))]
    return {
        "version": PLAN_VERSION,
        "digest": contract.digest,
        "metadata": metadata(contract),
        "model": {"name": contract.model.name, "architecture": contract.model.architecture},
        "policy": contract.policy,
        "shards": SHARDS,
        "totals": totals(lines),
        "tensors": lines,
    }


def metadata(contract: Contract) -> dict[str, str]:
    """This is what stands in the header of every shard."""
    return {"format": "pt", "precc_contract": contract.digest}


def totals(lines: list[dict[str, Any]]) -> dict[str, int]:
    """This counts what the lines read and write; bytes are those of tensor data, headers left aside."""
    return {
        "tensors_in": sum(parse_name(source["name"]).count for line in lines for source in line["sources"]),
        "tensors_out": sum(line["count"] * _experts(line) * len(line["outputs"]) for line in lines),
        "bytes": sum(line["bytes"] for line in lines),
    }


def _experts(line: dict[str, Any]) -> int:
    """How many tensors each output of a line stands for."""
    experts: int = line["stack"]["experts"] if "stack" in line else 1
    return experts


def plan_text(plan: dict[str, Any]) -> str:
    """This lays a plan out for reading: one fact a line, one tensor a line."""
    facts = [f' "{key}": {json.dumps(value)}' for key, value in plan.items() if key != "tensors"]
    tensors = ",\n".join(_tensor_text(line) for line in plan["tensors"])
    return "{\n" + ",\n".join(facts) + f',\n "tensors": [\n{tensors}\n ]\n}}\n'


def _tensor_text(line: dict[str, Any]) -> str:
    rows = []
    for key, value in line.items():
        if key in ("sources", "outputs"):
            listed = ",\n".join(f"    {json.dumps(item)}" for item in value)
            rows.append(f'   "{key}": [\n{listed}\n   ]')
        else:
            rows.append(f'   "{key}": {json.dumps(value)}')
    return "  {\n" + ",\n".join(rows) + "\n  }"


def _alike(contract: Contract, apart: bool) -> Callable[[Entry], Hashable]:
    """This makes what two entries must share to stand in one line, layer numbers left open."""

    def key(entry: Entry) -> Hashable:
        made = _written(entry, contract, apart)
        group = _open(made.group, entry.tensor.layer)
        return made if group == made.group else made._replace(group=group), entry.tensor.shape

    return key


def _written(entry: Entry, contract: Contract, apart: bool) -> Written:
    try:
        return written(entry, contract.model, apart)
    except KeyError as unknown:
        message = f"the converter cannot read or write {entry.tensor.name}: it has no {unknown.args[0]}"
        raise Unsupported(error("P701", message, entry.span)) from None


def _open(group: str | None, layer: int | None) -> str | None:
    if group is None or layer is None:
        return group
    return ".".join(LAYER if word == str(layer) else word for word in group.split("."))


def _line(folded: Folded, contract: Contract, apart: bool) -> dict[str, Any]:
    entry = folded.entry
    made = _written(entry, contract, apart)
    count = len(folded.layers or (0,)) * len(folded.experts or (0,))
    line: dict[str, Any] = {"tensor": folded.name, "count": count, "action": made.action}
    line |= dict(_computed(made, folded))
    if made.form is not None:
        line["stored_as"] = form_to_json(made.form)
    line["sources"] = [_named(folded.name, source) for source in made.sources]
    line["outputs"] = [_named(folded.name, output) for output in made.outputs]
    line["bytes"] = count * made.bytes
    return line


def _computed(made: Written, folded: Folded) -> Iterator[tuple[str, Any]]:
    """The quantizer and the group of an output that is quantized, else its format; how a stack is taken apart."""
    if made.weight.is_quantized:
        yield "quantizer", {"profile": PROFILE, **made.weight.to_json(), "axis": made.axis}
    else:
        yield "format", made.weight.format
        if made.axis is not None:
            yield "axis", made.axis
    if made.stack is not None:
        yield "stack", made.stack.to_json()
    if made.group is not None:
        words = {LAYER: braced(folded.layers), EXPERT: braced(folded.experts)}
        opened = (_open(made.group, folded.entry.tensor.layer) or "").split(".")
        yield "outer_scale_of", ".".join(words.get(word, word) for word in opened)


def _named(own: str, stored: StoredTensor) -> dict[str, Any]:
    name = f"{own.rpartition('.')[0]}.{stored.beside}" if stored.beside else own
    return {"name": name, "dtype": stored.dtype, "shape": list(stored.shape)}
