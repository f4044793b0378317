"""What the engine has in force, compared with the contract: one finding for each group of entries that differ alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names, listed, tensors_of
from precc.diagnostics import Diagnostic, error
from precc_te.addresses import Addresses, any_expert
from precc_te.modules import Line, modules_of
from precc_te.names import Module
from precc_te.precision import TePrecision
from precc_te.running import Foreign, Running
from precc_te.upstream.wire import Sighting, Stop
from precc_te.versions import engine_of

NOWHERE = Foreign("what no recipe can reach")


@dataclass(frozen=True, slots=True)
class Difference:
    """What entries have in common that share a finding."""

    wanted: TePrecision
    runs: tuple[str, ...]
    where: tuple[str, ...]
    cause: str


@dataclass
class Comparison:
    """Everything that was seen, and what the contract says. `engine` is the engines' names for messages."""

    contract: Contract
    engine: str
    seen: dict[Module, dict[str, Running]] = field(default_factory=dict)
    strangers: dict[str, str] = field(default_factory=dict)

    def note(self, where: str, found: Mapping[str, Running]) -> None:
        """This takes in what is in force in one place, by path; what the contract has and was not built is noted."""
        addresses = Addresses(self.contract, engine_of(self.contract.train).megatron.mtp_inner)
        for path, running in found.items():
            module = addresses.module(path)
            if module is None:
                self.strangers.setdefault(any_expert(path), f"{running}, at {where}")
            else:
                self._note(module, where, running)
        for module in modules_of(self.contract).precisions:
            if where not in self.seen.get(module, {}):
                self._note(module, where, NOWHERE)

    def confirm(self, where: str, found: Mapping[str, Sighting], recipes: Mapping[str, Running]) -> None:
        """This takes in the defaults of the recipe classes in a process of their own, for the layers that run them."""
        addresses = Addresses(self.contract, engine_of(self.contract.train).megatron.mtp_inner)
        for path, sighting in found.items():
            module, held = addresses.module(path), sighting.running
            if module is not None and isinstance(held, TePrecision) and held.is_quantized and not sighting.custom:
                own = recipes[held.recipe]
                self._note(module, where, replace(own, gradient=held.gradient) if isinstance(own, TePrecision) else own)

    def _note(self, module: Module, where: str, running: Running) -> None:
        """Of several experts the first that differs from the contract stands for the module."""
        held = self.seen.setdefault(module, {})
        if where not in held or held[where] == modules_of(self.contract).precisions[module]:
            held[where] = running

    def lines(self) -> Iterator[tuple[Line, TePrecision]]:
        """The entries that Megatron can be asked about, each with the precision of its linear layer."""
        for line in modules_of(self.contract).lines:
            if line.module is not None and isinstance(line.precision, TePrecision):
                yield line, line.precision

    def agreeing(self) -> Iterator[Entry]:
        """The entries that run as the contract says wherever they were seen."""
        for line, wanted in self.lines():
            found = self.seen.get(line.module, {}) if line.module is not None else {}
            if found and all(running == wanted for running in found.values()):
                yield line.entry

    def differences(self) -> Iterator[Diagnostic]:
        """One finding P511 a group."""
        groups: dict[Difference, list[Entry]] = {}
        for line, wanted in self.lines():
            found = self.seen.get(line.module, {}) if line.module is not None else {}
            wrong = {where: str(running) for where, running in found.items() if running != wanted}
            if wrong:
                runs = tuple(dict.fromkeys(wrong.values()))
                key = Difference(wanted, runs, tuple(wrong), str(line.entry.cause))
                groups.setdefault(key, []).append(line.entry)
        yield from (self._difference(key, entries) for key, entries in groups.items())
        yield from (self._stranger(path, runs) for path, runs in self.strangers.items())

    def _difference(self, key: Difference, entries: list[Entry]) -> Diagnostic:
        return error(
            "P511",
            f"{self.engine} would run {counted_names(entries)} as {listed(key.runs, 'or')}; "
            f"the contract says {key.wanted}",
            entries[0].span,
            help=f"seen at {_places(key.where)}; the policy decides it in {key.cause}",
        )

    def _stranger(self, path: str, runs: str) -> Diagnostic:
        return error("P511", f"{self.engine} would run `{path}` as {runs}; the contract has no tensor there")

    def stop(self, stop: Stop) -> Diagnostic:
        """The finding P512 for the engine's own exception."""
        return error("P512", f"{self.engine} stops at {stop.doing}: {stop.words}")


def count(entries: Iterable[Entry]) -> int:
    """How many tensors entries are, experts counted one by one."""
    return tensors_of(entries)


def _places(where: tuple[str, ...], most: int = 3) -> str:
    shown = [*where[:most], *([f"{len(where) - most} more layouts"] if len(where) > most else [])]
    return listed([f"({place})" if "," in place else place for place in shown])
