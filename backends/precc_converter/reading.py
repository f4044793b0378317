"""The plan read back as the converter follows it: by names alone, one answer a tensor of the contract.

Ranges are compared as boxes of numbers, so reading costs the same for 256 experts and for 25,600.

Every number and word is compared, with the contract or with what the lines add up to, and no other key may stand in a
plan. Free are two labels that nothing follows: the policy's name and the model's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from math import prod
from typing import Any, NamedTuple, get_args

from precc.backend import Reading, Unsupported
from precc.contract import Contract
from precc.diagnostics import Diagnostic, error
from precc.formats import FORMATS, Quantization
from precc.graph.forms import Form
from precc.graph.model import Tensor
from precc.records import record
from precc_converter.names import NUMBER, Box, Name, intersection, parse_name, tensor_name
from precc_converter.plan import PLAN_PATH, PLAN_VERSION, PROFILE, SHARDS, metadata, totals
from precc_converter.stored import form_from_json, form_to_json
from precc_converter.written import BYTES, Action, Stack, StoredTensor, Written


class PlanLine(NamedTuple):
    """One line of a plan, taken apart: whose tensors it converts, and how; `title` is the name as text."""

    name: Name
    title: str
    written: Written
    outer_scale_of: Name | None

    def decision_for(self, tensor: Tensor) -> Written:
        """What the line says of one tensor: its group named as this tensor's own."""
        if self.outer_scale_of is None:
            return self.written
        return self.written._replace(group=_narrowed(self.outer_scale_of, self.name, tensor))


@record
class Mixed:
    """What a plan says of one range of experts whose parts it converts in different ways."""

    parts: tuple[tuple[str, Written], ...]

    def __str__(self) -> str:
        return "; ".join(f"{name}: {made}" for name, made in self.parts)


def read_plan(contract: Contract, text: str | None) -> list[Reading]:
    """This is what a plan does with each tensor of a contract, in order.

    Raises Unsupported: P502 for what is no plan or that of another contract, P603 for tensors that it leaves out,
    converts twice, or invents.
    """
    tensors, lines = contract.tensors, parse_plan(text, contract)
    by_words: dict[tuple[str, ...], list[PlanLine]] = {}
    for line in lines:
        by_words.setdefault(line.name.words, []).append(line)
    names = [tensor_name(tensor) for tensor in tensors]
    pieces = [list(_pieces(name, by_words.get(name.words, []))) for name in names]
    findings = [*_twice(by_words), *_missing(names, pieces), *_extra(lines, pieces)]
    if findings:
        raise Unsupported(*findings)
    return [_reading(tensor, found) for tensor, found in zip(tensors, pieces, strict=True)]


def parse_plan(text: str | None, contract: Contract) -> list[PlanLine]:
    """This takes a plan apart. Raises Unsupported with P502 for what the converter would not accept."""
    if text is None:
        raise _malformed("it is missing")
    try:
        shown = json.loads(text)
        if shown["version"] != PLAN_VERSION:
            raise _malformed(f"it has version {shown['version']!r}, not {PLAN_VERSION}")
        if shown["digest"] != contract.digest:
            raise _malformed(f"it belongs to another contract, {shown['digest']}; this one is {contract.digest}")
        _only(shown, _FACTS, "the plan")
        lines = [_parse_line(line) for line in shown["tensors"]]
        _check_facts(shown, contract)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as problem:
        raise _malformed(f"{type(problem).__name__}: {problem}") from None
    return lines


def _malformed(what: str) -> Unsupported:
    return Unsupported(error("P502", f"{PLAN_PATH} is no plan that the converter follows: {what}"))


_FACTS = {"version", "digest", "metadata", "model", "policy", "shards", "totals", "tensors"}


def _only(shown: dict[str, Any], keys: set[str], where: str) -> None:
    beyond = sorted(set(shown) - keys)
    if beyond:
        raise ValueError(f"unknown key {beyond[0]!r} in {where}")


def _check_facts(shown: dict[str, Any], contract: Contract) -> None:
    if shown["metadata"] != metadata(contract):
        raise ValueError(f"the shards' metadata are {shown['metadata']}, not {metadata(contract)}")
    if shown["shards"] != SHARDS:
        raise ValueError(f"`shards` is another rule than the converter's: {shown['shards']}")
    architecture = contract.model.architecture
    if shown["model"] != {"name": shown["model"]["name"], "architecture": architecture}:
        raise ValueError(f"it is for {shown['model']}, not for a model of the architecture {architecture}")
    if shown["totals"] != totals(shown["tensors"]):
        raise ValueError(f"totals are {shown['totals']}, the lines add up to {totals(shown['tensors'])}")


def _parse_line(shown: dict[str, Any]) -> PlanLine:
    name = parse_name(shown["tensor"])
    _only(shown, _COMPUTED["quantizer" in shown], str(name))
    outputs = tuple(_parse_stored(item, name) for item in shown["outputs"])
    group = parse_name(shown["outer_scale_of"]) if "outer_scale_of" in shown else None
    without = {**_NO_QUANTIZER, "axis": shown.get("axis"), "format": shown.get("format")}
    quantizer = shown.get("quantizer", without)
    _only(quantizer, _QUANTIZER, f"the quantizer of {name}")
    _known(quantizer["profile"], (PROFILE,), "profile")
    written = Written(
        action=_known(shown["action"], get_args(Action), "action"),
        weight=Quantization.from_json(quantizer),
        axis=quantizer["axis"],
        group=None if group is None else str(group),
        sources=tuple(_parse_stored(item, name) for item in shown["sources"]),
        outputs=outputs,
        stack=Stack.from_json(shown["stack"]) if "stack" in shown else None,
        form=_parse_form(shown["stored_as"]) if "stored_as" in shown else None,
    )
    _known(written.weight.format, FORMATS, "format")
    if shown["count"] != name.count or shown["bytes"] != name.count * written.bytes:
        raise ValueError(
            f"{name}: says {shown['count']} tensors in {shown['bytes']} bytes, "
            f"its range and outputs make {name.count} in {name.count * written.bytes}"
        )
    return PlanLine(name, str(name), written, group)


_LINE = {"tensor", "count", "action", "stored_as", "sources", "outputs", "bytes"}
_COMPUTED = {False: _LINE | {"format", "axis", "stack"}, True: _LINE | {"quantizer", "outer_scale_of", "stack"}}
_NO_QUANTIZER = {"profile": PROFILE}
_QUANTIZER = {"profile", "axis", "format", "block", "scale", "scope", "four_over_six", "static"}


def _known(word: Any, words: Any, what: str) -> Any:
    if word not in words:
        raise ValueError(f"unknown {what} {word!r}")
    return word


def _parse_form(shown: dict[str, Any]) -> Form:
    """How a source is stored, said in the one way that it is written."""
    form = form_from_json(shown)
    if form_to_json(form) != shown:
        raise ValueError(f"`stored_as` is {shown}, which is written {form_to_json(form)}")
    return form


def _parse_stored(shown: dict[str, Any], owner: Name) -> StoredTensor:
    """A stored tensor by the word that tells it from its owner; by its whole name if it stands elsewhere."""
    name = str(parse_name(shown["name"]))
    stem = str(owner).rpartition(".")[0] + "."
    beside = "" if name == str(owner) else name.removeprefix(stem)
    _only(shown, {"name", "dtype", "shape"}, name)
    shape = tuple(shown["shape"])
    if not all(type(size) is int for size in shape):
        raise ValueError(f"{name} has no shape of whole numbers: {shown['shape']}")
    return StoredTensor(beside, _known(shown["dtype"], BYTES, "dtype"), shape)


Piece = tuple[PlanLine, Box]


def _pieces(name: Name, candidates: list[PlanLine]) -> Iterator[Piece]:
    for line in candidates:
        common = intersection(name.box, line.name.box)
        if common is not None:
            yield line, common


def _twice(by_words: dict[tuple[str, ...], list[PlanLine]]) -> Iterator[Diagnostic]:
    for lines in by_words.values():
        for one, other in combinations(lines, 2):
            common = intersection(one.name.box, other.name.box)
            if common is not None:
                both = Name(one.name.words, common)
                yield error("P603", f"{PLAN_PATH} converts {both} twice: in {one.name} and in {other.name}")


def _missing(names: list[Name], pieces: list[list[Piece]]) -> Iterator[Diagnostic]:
    absent = (
        (name, name.count - sum(_size(box) for _, box in found)) for name, found in zip(names, pieces, strict=True)
    )
    yield from _listed({str(name): count for name, count in absent if count > 0}, "does not convert")


def _extra(lines: list[PlanLine], pieces: list[list[Piece]]) -> Iterator[Diagnostic]:
    beyond = {line.title: line.name.count for line in lines}
    for found in pieces:
        for line, box in found:
            beyond[line.title] -= _size(box)
    unknown = {title: count for title, count in beyond.items() if count > 0}
    yield from _listed(unknown, "converts what the model does not have:")


def _listed(counts: dict[str, int], problem: str) -> Iterator[Diagnostic]:
    """One finding over all tensors that have a problem, with the first of their names."""
    if counts:
        first, *others = counts
        more = f", and of {len(others)} more names" if others else ""
        yield error("P603", f"{PLAN_PATH} {problem} {sum(counts.values())} tensors, of {first}{more}")


def _size(box: Box) -> int:
    return prod(map(len, box))


def _reading(tensor: Tensor, found: list[Piece]) -> Reading:
    said = [(line.title, line.decision_for(tensor)) for line, _ in found]
    because = f"{PLAN_PATH}: {', '.join(name for name, _ in said)}"
    first = said[0][1]
    if all(made == first for _, made in said):
        return Reading(first, because)
    return Reading(Mixed(tuple(said)), because)


def _narrowed(group: Name, owner: Name, tensor: Tensor) -> str:
    """A group's name with the ranges that it has in common with its owner put as the tensor writes them."""
    own = [word for word, kept in zip(_words(tensor), tensor_name(tensor).words, strict=True) if word != kept]
    numbers = iter(range(len(group.box)))
    shown = []
    for word in group.words:
        if word != NUMBER:
            shown.append(word)
            continue
        at = next(numbers)
        same = at < len(owner.box) and owner.box[at] == group.box[at]
        shown.append(own[at] if same else str(Name((word,), (group.box[at],))))
    return ".".join(shown)


def _words(tensor: Tensor) -> list[str]:
    return [*tensor.path, tensor.parameter] if tensor.parameter else list(tensor.path)
