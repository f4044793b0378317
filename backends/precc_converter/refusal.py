"""How the converter says that it cannot."""

from __future__ import annotations

from collections.abc import Sequence

from precc.contract import Entry
from precc.contract.wording import counted_names
from precc.diagnostics import Diagnostic, error


def refuse(entries: Sequence[Entry], problem: str, *, help: str, part: str = "weight") -> Diagnostic:
    """This is one P701 over all entries that have the same problem, at the rule that decided that part of the first."""
    return error("P701", f"the converter {problem}: {counted_names(entries)}", entries[0].span_of(part), help=help)
