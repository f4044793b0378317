"""The contract as Megatron sees it: one precision for each linear layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

from precc.contract import Contract, Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, error
from precc.formats import Quantization
from precc.records import field, record
from precc_te.names import Module, Names
from precc_te.precision import UNADDRESSED, Refusal, TePrecision, Unaddressed, precision_of
from precc_te.versions import engine_of


class Line(NamedTuple):
    """One entry of the contract: the linear layer it is part of (None: no recipe reaches it), and its precision."""

    entry: Entry
    module: Module | None
    precision: TePrecision | Unaddressed | Refusal

    @property
    def rounding(self) -> Quantization | None:
        """What the forward rounds the tensor to: `train fake_quant`."""
        return self.entry.decision.weight if self.entry.decision.train == "fake_quant" else None


@record
class Modules:
    """Every entry of a contract with its linear layer; what emission, rules and decisions all start from."""

    contract: Contract
    lines: tuple[Line, ...] = field(repr=False)

    @cached_property
    def precisions(self) -> dict[Module, TePrecision]:
        """The precision of each linear layer, in checkpoint order; that of its first tensor where they differ."""
        found: dict[Module, TePrecision] = {}
        for line in self.lines:
            if line.module is not None and isinstance(line.precision, TePrecision):
                found.setdefault(line.module, line.precision)
        return found

    @cached_property
    def quantized(self) -> dict[TePrecision, list[Line]]:
        """The quantized precisions that the contract trains in, each with its entries."""
        found: dict[TePrecision, list[Line]] = {}
        for line in self.lines:
            if isinstance(line.precision, TePrecision) and line.precision.is_quantized:
                found.setdefault(line.precision, []).append(line)
        return found

    @cached_property
    def refused(self) -> dict[Refusal, list[Entry]]:
        """What no linear layer runs as decided: each reason with its entries."""
        found: dict[Refusal, list[Entry]] = {}
        for line in self.lines:
            if isinstance(line.precision, Refusal):
                found.setdefault(line.precision, []).append(line.entry)
        return found

    def refusal(self, why: Refusal) -> Diagnostic:
        """The finding for all entries that are refused for one reason."""
        entries, te = self.refused[why], engine_of(self.contract.train).te
        what = f"{counted_names(entries)} cannot train as `{entries[0].decision}`"
        message = f"{what} (TransformerEngine {te}): {why.reason}"
        return error("P701", message, entries[0].span_of(why.part), help=why.help)

    def refusals(self) -> tuple[Diagnostic, ...]:
        """All of these, also those that precc's own rules report: what nobody may decide or emit."""
        return tuple(map(self.refusal, self.refused))

    def conflicts(self) -> Iterator[Diagnostic]:
        """Linear layers whose tensors are decided differently: one finding for each."""
        first: dict[Module, Line] = {}
        told: set[Module] = set()
        for line in self.lines:
            if line.module is None or line.module in told:
                continue
            other = first.setdefault(line.module, line)
            if (other.precision, other.rounding) != (line.precision, line.rounding):
                told.add(line.module)
                yield _conflict(other, line, line.module)


def _conflict(one: Line, other: Line, module: Module) -> Diagnostic:
    names = " and ".join(f"{line.entry.tensor.name} ({line.entry.decision})" for line in (one, other))
    return error(
        "P201",
        f"{names} are one linear layer in Megatron, {module.suffix}: they cannot run differently",
        other.entry.span or one.entry.span,
        help="decide both alike; q, k and v are one layer there, as are gate and up, and all experts together",
    )


@lru_cache(maxsize=1)
def modules_of(contract: Contract) -> Modules:
    """This assigns each entry its linear layer and precision. The latest contract's answer is kept: every rule asks."""
    names = Names(contract.model)
    return Modules(contract, tuple(_line(entry, names) for entry in contract.entries))


def _line(entry: Entry, names: Names) -> Line:
    module = names.module(entry.tensor)
    if module is not None:
        return Line(entry, module, precision_of(entry.decision))
    if entry.decision.train == "fake_quant":
        return Line(entry, None, _unrounded(entry))
    if not entry.decision.trains_quantized:
        return Line(entry, None, UNADDRESSED)
    said = precision_of(entry.decision)
    return Line(entry, None, said if isinstance(said, Refusal) and said.reported else _unreachable(entry))


def _unrounded(entry: Entry) -> Refusal:
    return Refusal(
        f"Megatron runs its {_part(entry)} outside TransformerEngine, where no forward is made to round a weight",
        "write `bf16`, or `train bf16` where only the server quantizes it",
        "train",
    )


def _part(entry: Entry) -> str:
    return entry.tensor.role.value if entry.tensor.role else entry.tensor.part


def _unreachable(entry: Entry) -> Refusal:
    return Refusal(
        f"Megatron runs its {_part(entry)} outside TransformerEngine, in 16 bits or more, and no recipe reaches it",
        "write `bf16`, or add `train bf16` where only the server quantizes it",
        reported="" if entry.tensor.is_gemm else "P305",
    )
