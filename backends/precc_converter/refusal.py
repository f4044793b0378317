"""How the converter says that it cannot."""

from __future__ import annotations

from collections.abc import Sequence

from precc.contract import Entry
from precc.diagnostics import Diagnostic, error


def refuse(entries: Sequence[Entry], problem: str, *, help: str) -> Diagnostic:
    """This is one P701 over all entries that have the same problem, at the rule that decided the first."""
    count = sum(entry.tensor.count for entry in entries)
    others = f" and {count - 1} other tensors" if count > 1 else ""
    return error("P701", f"the converter {problem}: {_first(entries[0])}{others}", entries[0].span, help=help)


def _first(entry: Entry) -> str:
    tensor = entry.tensor
    first = tensor if tensor.experts is None else tensor.narrowed(range(tensor.experts.start, tensor.experts.start + 1))
    return first.name
