"""What an audit finds, gathered so that a fault of 40,000 tensors is one finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from precc.contract.wording import amount
from precc.diagnostics import Diagnostic, error
from precc.graph.model import natural
from precc_converter.auditing.names import counted

UNLIKE = "P601"
MISSING_OR_EXTRA = "P603"
UNREADABLE = "P604"
COMPILED = "P608"
INDEX = "P609"
CONFIGURATION = "P610"
NOT_SHARED = "P611"
OTHER_BYTES = "P612"
IMPOSSIBLE = "P613"
OTHER_LAYOUT = "P614"

CONVERT = "convert the source again with `precc convert`"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a tensor, in words that fit every tensor with the same fault: they come before its name."""

    code: str
    what: str
    help: str


@dataclass
class Faults:
    """Faults with the tensors that have them, in the order in which they were found."""

    _found: dict[Fault, dict[str, Path | None]] = field(default_factory=dict)

    def add(self, fault: Fault, names: Iterable[str], file: Path | None = None) -> None:
        """This notes a fault of tensors in a file, or in none."""
        self._found.setdefault(fault, {}).update(dict.fromkeys(names, file))

    def __ior__(self, other: Faults) -> Faults:
        for fault, found in other._found.items():
            self._found.setdefault(fault, {}).update(found)
        return self

    @property
    def names(self) -> set[str]:
        """Every tensor that has a fault."""
        return {name for found in self._found.values() for name in found}

    def findings(self) -> Iterator[Diagnostic]:
        """One finding a fault."""
        for fault, found in self._found.items():
            message = f"{fault.what}: {counted(sorted(found, key=natural))}{_within(found.values())}"
            yield error(fault.code, message, help=fault.help)


def _within(files: Iterable[Path | None]) -> str:
    names = sorted({file.name for file in files if file is not None})
    if not names:
        return ""
    return f", in {names[0]}" if len(names) == 1 else f", in {amount(len(names), 'file')} from {names[0]}"
