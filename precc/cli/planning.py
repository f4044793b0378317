"""The numbers of a plan: what a policy decides on a model, by format, by role and by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from precc.cli.terminal import gib, percent, print_table
from precc.contract import Entry
from precc.formats import FORMATS
from precc.graph.model import ModelGraph, Tensor
from precc.resolve.bind import Binding
from precc.resolve.policy import PolicyRule
from precc.syntax.words import ROLES, Role

OTHER = "other"
"""The row of tensors that play none of the roles (biases, correction terms)."""

Row = dict[str, Any]


def make_plan(binding: Binding) -> Row:
    """The plan, in the shape that `--output-format json` writes.

    A fraction is a share of all parameters; `fraction_outside_mtp` of those outside towers and MTP layers.
    """
    entries, model = binding.contract.entries, binding.model
    size = _bytes(entries)
    return {
        "model": model.name,
        "tensors": sum(tensor.count for tensor in model.tensors),
        "parameters": model.parameters,
        "bytes": size,
        "bits_per_weight": round(size * 8 / model.parameters, 4) if model.parameters else 0.0,
        "digest": binding.contract.digest,
        "stored": _stored(model.tensors),
        "formats": _formats(entries),
        "roles": _roles(entries),
        "rules": _rules(binding),
    }


def _stored(tensors: Iterable[Tensor]) -> dict[str, dict[str, int]]:
    """What the checkpoint holds, by the format that it is stored in."""
    found: dict[str, dict[str, int]] = {}
    for tensor in tensors:
        row = found.setdefault(tensor.form.format, {"tensors": 0, "parameters": 0})
        row["tensors"] += tensor.count
        row["parameters"] += tensor.parameters
    return {name: found[name] for name in FORMATS if name in found}


def _bytes(entries: Iterable[Entry]) -> int:
    return (sum(entry.stored_bits for entry in entries) + 7) // 8


def _formats(entries: Sequence[Entry]) -> dict[str, Row]:
    total = sum(entry.tensor.parameters for entry in entries)
    grouped = _grouped(entries, lambda entry: entry.decision.weight.format)
    return {name: _row(grouped[name], total) for name in FORMATS if name in grouped}


def _roles(entries: Sequence[Entry]) -> dict[str, Row]:
    total = sum(entry.tensor.parameters for entry in entries)
    outside = sum(entry.tensor.parameters for entry in entries if entry.tensor.outer is None)
    grouped = _grouped(entries, lambda entry: role(entry.tensor))
    return {
        name: {**_row(grouped[name], total), "fraction_outside_mtp": _outside(grouped[name], outside)}
        for name in (*ROLES, OTHER)
        if name in grouped
    }


def role(tensor: Tensor) -> str:
    """The row under which a tensor is counted."""
    return tensor.bucket.value if tensor.bucket else OTHER


def _grouped(entries: Iterable[Entry], key: Callable[[Entry], str]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return groups


def _row(entries: Sequence[Entry], total: int) -> Row:
    parameters = sum(entry.tensor.parameters for entry in entries)
    return {
        "tensors": sum(entry.tensor.count for entry in entries),
        "parameters": parameters,
        "bytes": _bytes(entries),
        "fraction": _share(parameters, total),
    }


def _outside(entries: Sequence[Entry], total: int) -> float:
    return _share(sum(entry.tensor.parameters for entry in entries if entry.tensor.outer is None), total)


def _share(part: int, total: int) -> float:
    return round(part / total, 6) if total else 0.0


def _rules(binding: Binding) -> list[Row]:
    """The defaults, then every rule: how many tensors it may decide about, and of how many it decides some part."""
    entries = binding.contract.entries
    return [
        _rule(use.rule, [entries[at] for at in use.reached], [entries[at] for at in use.won])
        for use in (*binding.defaults, *binding.uses)
    ]


def _rule(rule: PolicyRule, matched: Sequence[Entry], won: Sequence[Entry]) -> Row:
    return {
        "file": rule.cause.file,
        "line": rule.cause.line,
        "text": rule.cause.text,
        "matched": sum(entry.tensor.count for entry in matched),
        "won": sum(entry.tensor.count for entry in won),
        "bytes": _bytes(won),
    }


def print_plan(plan: Row, policy: str, model: ModelGraph) -> None:
    """The plan of a model as tables."""
    print(f"{policy} on {plan['model']}")
    print(f"{plan['tensors']:,} tensors, {plan['parameters']:,} parameters, {gib(plan['bytes'])}")
    print(f"{plan['bits_per_weight']:.3f} bits a weight, digest {plan['digest'][:12]}")
    print(f"stored as {_stored_text(plan['stored'])}")
    print(_tied_text(model), end="")
    print()
    counts = (">tensors", ">parameters", ">size", ">share")
    print_table(("format", *counts), [(name, *_counts(row)) for name, row in plan["formats"].items()])
    print()
    print_table(
        ("role", *counts, ">outside MTP"),
        [(name, *_counts(row), percent(row["fraction_outside_mtp"])) for name, row in plan["roles"].items()],
    )
    print(_experts(plan), end="")
    if plan["rules"]:
        print()
        print_table(
            (">matched", ">won", ">size", "rule"),
            [(f"{r['matched']:,}", f"{r['won']:,}", gib(r["bytes"]), _named(r)) for r in plan["rules"]],
        )


def _stored_text(stored: dict[str, dict[str, int]]) -> str:
    """The formats of the checkpoint, the largest first, with counts where there are several."""
    if len(stored) == 1:
        return next(iter(stored))
    largest_first = sorted(stored.items(), key=lambda item: -item[1]["parameters"])
    return ", ".join(f"{name} ({row['tensors']:,} tensors)" for name, row in largest_first)


def _tied_text(model: ModelGraph) -> str:
    """A line about the head that is the embedding once more, where it is not counted as a tensor of its own."""
    if not model.config.get("tie_word_embeddings") or model.config.get("lm_head_stored"):
        return ""
    embedding = next(tensor for tensor in model.tensors if tensor.role is Role.EMBEDDING)
    return f"lm_head is tied to `{embedding.module}` and not counted; a checkpoint may store it too\n"


def _experts(plan: Row) -> str:
    """How much of a mixture of experts its experts are, where an MTP layer blurs that share."""
    experts = [plan["roles"][name] for name in ("routed_experts", "shared_experts") if name in plan["roles"]]
    share = sum(row["fraction_outside_mtp"] for row in experts)
    if not experts or share == sum(row["fraction"] for row in experts):
        return ""
    parameters = round(sum(row["parameters"] for row in experts) / share)
    whole = f"{parameters / 1e9:,.1f} B parameters outside MTP layers"
    return f"\nrouted and shared experts: {percent(share)} of the {whole}\n"


def _counts(row: Row) -> tuple[str, ...]:
    return f"{row['tensors']:,}", f"{row['parameters']:,}", gib(row["bytes"]), percent(row["fraction"])


def _named(rule: Row) -> str:
    return f"{rule['file']}:{rule['line']}: {rule['text']}"
