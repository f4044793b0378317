"""`contract.json`: everything that emitting needs, and nothing that changes with the order of rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precc.contract.contract import Contract
from precc.contract.entry import Cause, Entry
from precc.contract.fold import LAYER, Folded, by_cause, fold
from precc.contract.layout import RolloutLayout, TrainLayout
from precc.formats import Decision
from precc.graph.forms import Form
from precc.graph.model import EXPERT, ModelGraph, Tensor
from precc.syntax.words import Role

VERSION = 1


class ContractError(Exception):
    """A file that is no contract, or one whose content is not what its digest says."""


def contract_to_json(contract: Contract) -> dict[str, Any]:
    """This is the content of `contract.json`."""
    model = contract.model
    return {
        "version": VERSION,
        "digest": contract.digest,
        "policy": contract.policy,
        "model": {
            "name": model.name,
            "architecture": model.architecture,
            "family": model.family,
            "layers": model.layers,
            "config": dict(model.config),
        },
        "kv_cache": contract.kv_cache,
        "targets": None if contract.targets is None else list(contract.targets),
        "train": contract.train.to_json(),
        "rollout": contract.rollout.to_json(),
        "tensors": [_line_to_json(line) for line in fold(contract.entries, by_cause)],
    }


def load_contract(path: str | Path) -> Contract:
    """This reads a `contract.json`, or the one in a folder. Raises ContractError, OSError."""
    where = Path(path)
    where = where / "contract.json" if where.is_dir() else where
    try:
        shown = json.loads(where.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ContractError(f"{where}: not a contract: {problem}") from None
    return contract_from_json(shown, str(where))


def contract_from_json(shown: Any, where: str = "contract.json") -> Contract:
    """This is the contract that `contract_to_json` wrote. Raises ContractError, also on a digest that does not fit."""
    if not isinstance(shown, dict) or shown.get("version") != VERSION:
        raise ContractError(f"{where}: not a contract of version {VERSION}")
    try:
        contract = _contract(shown)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ContractError(f"{where}: malformed contract: {type(problem).__name__}: {problem}") from None
    if contract.digest != shown["digest"]:
        raise ContractError(
            f"{where}: the content has digest {contract.digest[:12]}, the file says {shown['digest'][:12]}: "
            "it was edited after it was compiled"
        )
    return contract


def _contract(shown: dict[str, Any]) -> Contract:
    model = shown["model"]
    entries = tuple(entry for line in shown["tensors"] for entry in _entries(line))
    graph = ModelGraph(
        name=model["name"],
        architecture=model["architecture"],
        family=model["family"],
        layers=model["layers"],
        tensors=tuple(entry.tensor for entry in entries),
        config={key: tuple(fact) if isinstance(fact, list) else fact for key, fact in model["config"].items()},
    )
    return Contract(
        model=graph,
        policy=shown["policy"],
        entries=entries,
        kv_cache=shown["kv_cache"],
        train=TrainLayout(**shown["train"]),
        rollout=RolloutLayout(**shown["rollout"]),
        targets=None if shown["targets"] is None else tuple(shown["targets"]),
    )


def _line_to_json(line: Folded) -> dict[str, Any]:
    return {
        "name": line.name,
        **line.entry.decision.to_json(),
        "rule": line.entry.cause.to_json(),
        "tensor": _tensor_to_json(line.entry.tensor, line.layers, line.experts),
    }


def _tensor_to_json(tensor: Tensor, layers: range | None, experts: range | None) -> dict[str, Any]:
    layer = str(tensor.layer)
    opened = [LAYER if word == layer else word for word in tensor.path] if layers is not None else list(tensor.path)
    facts: dict[str, Any] = {
        "path": ".".join(opened),
        "parameter": tensor.parameter,
        "layers": _ends(layers),
        "experts": _ends(experts),
        "shape": list(tensor.shape),
        "dtype": tensor.form.dtype,
        "role": tensor.role.value if tensor.role else None,
        "part": tensor.part,
        "within": sorted(role.value for role in tensor.within),
        "mtp": tensor.mtp,
        "contracted": list(tensor.contracted),
        "parallel": tensor.parallel,
        "fused": {engine: _open(group, layers, layer) for engine, group in tensor.fused},
        "scale_group": _open(tensor.scale_group, layers, layer),
        "protected": tensor.protected,
        "outer": tensor.outer.value if tensor.outer else None,
        "outer_depth": tensor.outer_depth,
        "tied_to": tensor.tied_to,
        "stored_block": list(tensor.form.block) if tensor.form.block else None,
        "stored_words": list(tensor.form.words),
        "stored_apart": list(tensor.form.apart),
        "interleaved": tensor.interleaved,
    }
    return {key: value for key, value in facts.items() if value is not False and value not in (None, [], {})}


def _open(group: str | None, layers: range | None, layer: str) -> str | None:
    if group is None or layers is None:
        return group
    return ".".join(LAYER if word == layer else word for word in group.split("."))


def _ends(numbers: range | None) -> list[int] | None:
    return None if numbers is None else [numbers.start, numbers.stop]


def _entries(line: dict[str, Any]) -> Iterator[Entry]:
    decision, cause, facts = Decision.from_json(line), Cause.from_json(line["rule"]), line["tensor"]
    layers = range(*facts["layers"]) if "layers" in facts else (None,)
    for layer in layers:
        yield Entry(_tensor(facts, layer), decision, cause)


def _tensor(facts: dict[str, Any], layer: int | None) -> Tensor:
    def closed(text: str) -> str:
        return text.replace(LAYER, str(layer))

    group = facts.get("scale_group")
    return Tensor(
        path=tuple(EXPERT if word == EXPERT else closed(word) for word in facts["path"].split(".")),
        parameter=facts.get("parameter", ""),
        shape=tuple(facts.get("shape", ())),
        role=Role(facts["role"]) if "role" in facts else None,
        part=facts["part"],
        within=frozenset(Role(role) for role in facts.get("within", ())),
        layer=layer,
        mtp=facts.get("mtp"),
        experts=range(*facts["experts"]) if "experts" in facts else None,
        contracted=tuple(facts.get("contracted", ())),
        parallel=facts.get("parallel"),
        fused=tuple((engine, closed(name)) for engine, name in facts.get("fused", {}).items()),
        scale_group=None if group is None else closed(group),
        protected=facts.get("protected", False),
        outer=Role(facts["outer"]) if "outer" in facts else None,
        outer_depth=facts.get("outer_depth", 0),
        tied_to=facts.get("tied_to"),
        form=_form(facts),
        interleaved=facts.get("interleaved", False),
    )


def _form(facts: dict[str, Any]) -> Form:
    return Form(
        facts["dtype"],
        tuple(facts["stored_block"]) if "stored_block" in facts else None,
        tuple(facts.get("stored_words", ())),
        tuple(facts.get("stored_apart", ())),
    )
