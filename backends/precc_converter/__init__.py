"""The checkpoint converter as a target: what it reads, computes and writes for each tensor of a contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from precc.backend import Artifact, Reading
from precc.contract import Contract, Entry
from precc_converter.plan import PLAN_PATH, plan_of, plan_text
from precc_converter.reading import read_plan
from precc_converter.written import Written, parts_stacks, written

if TYPE_CHECKING:
    from precc_converter.auditing.flow import audit
    from precc_converter.conversion.findings import NotConverted
    from precc_converter.conversion.flow import convert
    from precc_converter.live import (
        CameTwice,
        LiveExporter,
        MissingTensors,
        NotFiniteTensor,
        Session,
        SessionFailed,
        UnknownName,
        WrongShape,
        WrongTensor,
        fingerprint,
    )


class Converter:
    """The backend `converter`: it emits the plan that the converter and the live export both follow."""

    name = "converter"
    engines: Mapping[str, tuple[str, ...]] = {}
    rules = "precc_converter.rules"

    def names(self, contract: Contract, entry: Entry) -> Mapping[str, str]:
        """The converter keeps the names of the checkpoint."""
        return {}

    def emit(self, contract: Contract) -> tuple[Artifact, ...]:
        """This writes `converter/plan.json`."""
        return (Artifact(PLAN_PATH, plan_text(plan_of(contract))),)

    def decides(self, contract: Contract) -> Sequence[Written]:
        """This is what the converter does for each entry."""
        apart = parts_stacks(contract)
        return [written(entry, contract.model, apart) for entry in contract.entries]

    def read_back(self, contract: Contract, artifacts: Mapping[str, str]) -> Sequence[Reading]:
        """This is what the plan's text says of each tensor."""
        return read_plan(contract, artifacts.get(PLAN_PATH))


backend = Converter()


def __getattr__(name: str) -> Any:
    """What needs torch is loaded when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


_LAZY = {
    "CameTwice": "precc_converter.live",
    "LiveExporter": "precc_converter.live",
    "MissingTensors": "precc_converter.live",
    "NotConverted": "precc_converter.conversion.findings",
    "NotFiniteTensor": "precc_converter.live",
    "Session": "precc_converter.live",
    "SessionFailed": "precc_converter.live",
    "UnknownName": "precc_converter.live",
    "WrongShape": "precc_converter.live",
    "WrongTensor": "precc_converter.live",
    "audit": "precc_converter.auditing.flow",
    "convert": "precc_converter.conversion.flow",
    "fingerprint": "precc_converter.live",
}

__all__ = [
    "CameTwice",
    "Converter",
    "LiveExporter",
    "MissingTensors",
    "NotConverted",
    "NotFiniteTensor",
    "Session",
    "SessionFailed",
    "UnknownName",
    "WrongShape",
    "WrongTensor",
    "audit",
    "backend",
    "convert",
    "fingerprint",
]
