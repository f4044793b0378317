"""How findings name tensors."""

from __future__ import annotations

from collections.abc import Sequence

from precc.contract import Entry
from precc.contract.fold import fold


def named(entries: Sequence[Entry]) -> str:
    """The first name with its ranges, and how many tensors the finding is about."""
    lines = fold(entries, lambda _: None)
    total = sum(entry.tensor.count for entry in entries)
    first = lines[0].name.removesuffix(".weight")
    if total == 1:
        return f"`{first}`"
    more = f", and {len(lines) - 1} more such" if len(lines) > 1 else ""
    return f"`{first}`{more} ({total:,} tensors)"
