"""The four stages of a run, side by side: what converter, trainer, live export and server each do with a tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from precc.contract import Contract, Entry
from precc.graph.model import Tensor
from precc.records import replace
from precc_miles.converter import Conversion, listed
from precc_miles.environment import Process
from precc_miles.exporter import Export
from precc_miles.forms import Form
from precc_miles.names import Hit, Linear, is_latent, linear_of
from precc_miles.rollout import Server
from precc_miles.trainer import Training

UNQUANTIZED = "unquantized"
DIVIDED = "some experts quantized and others not"
NO_DRAFT = "no draft model"
IN_PART = "a fused module that is listed in part, with which it does not start"
TITLES: Mapping[str, str] = {
    "converter": "the converter",
    "trainer": "the trainer",
    "export": "the live export",
    "rollout": "the server",
}


@dataclass(frozen=True, slots=True)
class Staged:
    """What each stage does with one tensor, in words that are compared."""

    converter: str = UNQUANTIZED
    trainer: str = UNQUANTIZED
    export: str = UNQUANTIZED
    rollout: str = UNQUANTIZED

    def apart(self, other: Staged) -> tuple[str, ...]:
        """The stages in which two differ."""
        return tuple(name for name in TITLES if getattr(self, name) != getattr(other, name))

    def __str__(self) -> str:
        said: dict[str, list[str]] = {}
        for stage in fields(self):
            said.setdefault(getattr(self, stage.name), []).append(stage.name)
        if len(said) == 1:
            return f"{self.converter} on all stages"
        return "; ".join(f"{what} ({', '.join(stages)})" for what, stages in said.items())


def decided(entry: Entry, drafts: bool = True) -> Staged:
    """What the contract wants of each stage, by a server that runs the MTP layers as its draft model, or has none."""
    decision, served = entry.decision, drafts or entry.tensor.mtp is None
    if not decision.is_quantized:
        return Staged(rollout=UNQUANTIZED if served else NO_DRAFT)
    stored = str(decision.weight)
    forward = replace(decision, train=None, backward=None, hadamard=False, stochastic_rounding=False)
    trained = str(replace(decision, train=None)) if decision.trains_quantized else UNQUANTIZED
    return Staged(stored, trained, stored, str(forward) if served else NO_DRAFT)


@dataclass(frozen=True)
class Run:
    """Everything that the files of a run say. Without a conversion the checkpoint stays as it is.

    `drafts` says whether the server may run the model's MTP layers as a draft model.
    """

    training: Training
    conversion: Conversion | None = None
    export: Export | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    drafts: bool = True

    def draft(self, contract: Contract) -> dict[Entry, str]:
        """What a server that had a draft model would do with the tensors of the MTP layers."""
        ahead = [entry for entry in contract.entries if entry.tensor.mtp is not None]
        stages = _Stages(dataclasses.replace(self, drafts=True), contract) if ahead else None
        return {entry: stages.served(entry.tensor) for entry in ahead if stages is not None}

    def stages(self, contract: Contract) -> tuple[Staged, ...]:
        """What each stage does with each tensor of the contract; only its names, roles and shapes are used."""
        return _Stages(self, contract).all()


class _Stages:
    def __init__(self, run: Run, contract: Contract) -> None:
        self._run, self._contract = run, contract
        self._layers, self._latent = contract.model.layers, is_latent(contract.model)
        self._listed: frozenset[str] = frozenset()
        self._server: Server | None = None
        self._processes: dict[str, Process] = {}
        if run.conversion is not None:
            entries = listed(run.conversion, contract.model)
            self._listed = frozenset(entries)
            self._server = Server(run.conversion.form, entries, contract.model)

    def all(self) -> tuple[Staged, ...]:
        return tuple(map(self._of, self._contract.tensors))

    def _of(self, tensor: Tensor) -> Staged:
        linear = linear_of(tensor, self._latent)
        return Staged(
            self._converted(tensor), self._trained(linear), self._exported(tensor, linear), self.served(tensor)
        )

    def _converted(self, tensor: Tensor) -> str:
        made = self._run.conversion
        if made is None:
            return UNQUANTIZED
        return _said(made.quantizes(tensor, self._layers), self._process(made.form).stored)

    def _trained(self, linear: Linear | None) -> str:
        if linear is None or not linear.multiplied:
            return UNQUANTIZED
        forms = self._run.training.runs(linear, self._layers, self._contract.train)
        said = sorted(UNQUANTIZED if form is None else self._process(form).trained for form in forms)
        return " or ".join(said)

    def _exported(self, tensor: Tensor, linear: Linear | None) -> str:
        export = self._run.export
        if export is None:
            return UNQUANTIZED
        found = export.quantizes(tensor, linear, self._layers, self._listed)
        return _said(found, self._process(export.form).exported)

    def served(self, tensor: Tensor) -> str:
        if tensor.mtp is not None and not self._run.drafts:
            return NO_DRAFT
        if self._server is None:
            return UNQUANTIZED
        found = self._server.quantizes(tensor)
        return IN_PART if found is None else _said(found, self._process(self._server.form).served)

    def _process(self, form: Form) -> Process:
        return self._processes.setdefault(form.name, Process(form, self._run.variables))


def _said(found: Hit, quantized: str) -> str:
    return DIVIDED if found is None else quantized if found else UNQUANTIZED
