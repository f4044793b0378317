"""A contract that `precc compile` wrote: every decision is in it, and is taken as it stands."""

from __future__ import annotations

from precc.contract import Entry
from precc.contract.serial import ContractError, contract_from_json
from precc.diagnostics import error
from precc.formats import Decision, kept
from precc.graph.model import ModelGraph
from precc.importing.reading import Document, Reading, Source, Unimportable

TOOL = "precc's contract.json"
RANK = 1

SEEMS = "P901"
_KEYS = {"version", "digest", "policy", "model", "kv_cache", "tensors"}


def recognizes(source: Source) -> bool:
    """Whether a file has what a contract has."""
    return any(map(_is_contract, source.documents))


def _is_contract(document: Document) -> bool:
    said = document.section()
    return said is not None and said.keys() >= _KEYS


def read(source: Source, graph: ModelGraph) -> Reading:
    """The decisions of the contract, which must be one for the model."""
    document = next(document for document in source.documents if _is_contract(document))
    try:
        contract = contract_from_json(document.data, document.path)
    except ContractError as problem:
        raise Unimportable([error(SEEMS, str(problem), help="compile the policy again")]) from None
    if {*_names(contract.model)} != {*_names(graph)}:
        other = f"{document.path} is for {contract.model.name}, whose tensors are not those of {graph.name}"
        raise Unimportable([error(SEEMS, other, help=f"give it --model {contract.model.name}")])
    return Reading(
        decisions=tuple((entry.tensor, _said(entry)) for entry in contract.entries),
        kv_cache=contract.kv_cache,
        targets=contract.targets or (),
    )


def _said(entry: Entry) -> Decision | None:
    """The decision; None for a tensor that no GEMM has and that stays as it is stored."""
    return None if entry.decision == kept(entry.tensor.dtype) else entry.decision


def _names(graph: ModelGraph) -> tuple[tuple[tuple[str, ...], str], ...]:
    return tuple((tensor.path, tensor.parameter) for tensor in graph.tensors)
