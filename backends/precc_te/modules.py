"""The contract as Megatron sees it: one precision for each linear layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from precc.contract import Contract, Entry
from precc.diagnostics import Diagnostic, error
from precc_te.names import Module, Names
from precc_te.precision import UNADDRESSED, Refusal, TePrecision, Unaddressed, precision_of


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of the contract: the linear layer it is part of (None: no recipe reaches it), and its precision."""

    entry: Entry
    module: Module | None
    precision: TePrecision | Unaddressed | Refusal


@dataclass(frozen=True)
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

    def conflicts(self) -> Iterator[Diagnostic]:
        """Linear layers whose tensors are decided differently: one finding for each."""
        first: dict[Module, Line] = {}
        told: set[Module] = set()
        for line in self.lines:
            if line.module is None or line.module in told:
                continue
            other = first.setdefault(line.module, line)
            if other.precision != line.precision:
                told.add(line.module)
                yield _conflict(other, line, line.module)


def _conflict(one: Line, other: Line, module: Module) -> Diagnostic:
    names = f"{one.entry.tensor.name} ({one.precision}) and {other.entry.tensor.name} ({other.precision})"
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
    if entry.decision.trains_quantized:
        return Line(entry, None, _unreachable(entry))
    return Line(entry, None, UNADDRESSED)


def _unreachable(entry: Entry) -> Refusal:
    part = entry.tensor.role.value if entry.tensor.role else entry.tensor.part
    return Refusal(
        f"Megatron runs its {part} outside TransformerEngine, in 16 bits or more, and no recipe reaches it",
        "write `bf16`, or add `train bf16` where only the server quantizes it",
    )
