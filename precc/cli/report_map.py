"""The layer × module map of a contract: which decisions stand in each cell, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from precc.contract import Contract, Entry
from precc.contract.fold import fold
from precc.formats import Decision
from precc.graph.model import Tensor
from precc.records import record
from precc.syntax.words import Role

Column: TypeAlias = tuple[str, str]
"""The heading of a group of columns, and the column's own."""

Row: TypeAlias = tuple[str, int]
"""`layer`, `mtp` or `outside`, and a number; rows sort in the order in which the model runs them."""

_GROUPS: dict[Role | None, str] = {
    Role.EMBEDDING: "in and out",
    Role.LM_HEAD: "in and out",
    None: "in and out",
    Role.ATTENTION: "attention",
    Role.MLA: "attention",
    Role.LINEAR_ATTENTION: "linear attention",
    Role.INDEXER: "indexer",
    Role.DENSE_MLP: "dense MLP",
    Role.ROUTER: "MoE",
    Role.SHARED_EXPERTS: "shared expert",
    Role.ROUTED_EXPERTS: "MoE",
    Role.NORM: "others",
    Role.VISION: "vision",
    Role.AUDIO: "audio",
}
"""Roles → headings, in the order of the columns."""

_WHOLE = {Role.ROUTED_EXPERTS: "routed experts", Role.NORM: "norms", Role.ROUTER: "router"}
"""Roles that have one column for all their weights."""

TOOLTIP_LINES = 12

_ROWS = ("outside", "layer", "mtp")


class Segment(NamedTuple):
    """The entries of one cell that share a decision."""

    decision: Decision
    entries: tuple[Entry, ...]


@record
class LayerMap:
    """Rows, columns, and the segments of each cell; a cell that is absent has no weight in this model."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: dict[tuple[Row, Column], tuple[Segment, ...]]


def layer_map(contract: Contract) -> LayerMap:
    """This sorts every entry of a contract into its cell."""
    held: dict[tuple[Row, Column], list[Entry]] = {}
    columns: dict[Column, None] = {}
    for entry in contract.entries:
        column = column_of(entry.tensor)
        columns[column] = None
        held.setdefault((row_of(entry.tensor), column), []).append(entry)
    headings = list(dict.fromkeys(_GROUPS.values()))
    return LayerMap(
        rows=tuple(sorted({row for row, _ in held}, key=lambda row: (_ROWS.index(row[0]), row[1]))),
        columns=tuple(sorted(columns, key=lambda column: headings.index(column[0]))),
        cells={place: segments(entries) for place, entries in held.items()},
    )


def row_of(tensor: Tensor) -> Row:
    """The row of a tensor: its decoder layer, its multi-token-prediction layer, or outside of both."""
    if tensor.layer is not None:
        return "layer", tensor.layer
    return ("mtp", tensor.mtp) if tensor.mtp is not None else ("outside", 0)


def column_of(tensor: Tensor) -> Column:
    """The column of a tensor, by role and part."""
    tower = tensor.outer if tensor.outer in (Role.VISION, Role.AUDIO) else None
    if tower is not None:
        return _GROUPS[tower], _WHOLE.get(tensor.role, tensor.part) if tensor.role else tensor.part
    if tensor.part == "bias":
        return "others", "biases"
    role = tensor.role
    return _GROUPS[role], (_WHOLE.get(role) if role else None) or tensor.part


def segments(entries: Iterable[Entry]) -> tuple[Segment, ...]:
    """Entries grouped by decision, in the order in which decisions first appear."""
    grouped: dict[Decision, list[Entry]] = {}
    for entry in entries:
        grouped.setdefault(entry.decision, []).append(entry)
    return tuple(Segment(decision, tuple(alike)) for decision, alike in grouped.items())


def row_title(row: Row) -> str:
    """A row's heading."""
    kind, number = row
    return {"layer": str(number), "mtp": f"MTP {number}", "outside": "outside"}[kind]


def describe(segment: Segment) -> str:
    """What a cell says when asked: the tensors, the decision, and the rules behind it, one a line."""
    names = _names(segment.entries)
    causes = dict.fromkeys(f"by {entry.cause}" for entry in segment.entries)
    return "\n".join([*_first(names), f"→ {segment.decision}", *_first(list(causes))])


def _names(entries: Sequence[Entry]) -> list[str]:
    if len(entries) == 1:
        return [entries[0].tensor.name]
    return [line.name for line in fold(entries, lambda entry: entry.tensor.shape)]


def _first(lines: list[str]) -> list[str]:
    """So many lines as a tooltip holds, with how many are left."""
    left = len(lines) - TOOLTIP_LINES
    return lines if left <= 0 else [*lines[:TOOLTIP_LINES], f"… and {left} more"]
