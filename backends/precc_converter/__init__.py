"""The checkpoint converter as a target: what it reads, computes and writes for each tensor of a contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from precc.backend import Artifact, Reading
from precc.contract import Contract, Entry
from precc_converter.plan import PLAN_PATH, plan_of, plan_text
from precc_converter.reading import read_plan
from precc_converter.written import Written, written


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
        return [written(entry, contract.model) for entry in contract.entries]

    def read_back(self, contract: Contract, artifacts: Mapping[str, str]) -> Sequence[Reading]:
        """This is what the plan's text says of each tensor."""
        return read_plan(contract, artifacts.get(PLAN_PATH))


backend = Converter()

__all__ = ["Converter", "backend"]
