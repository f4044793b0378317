"""Rows that a checkpoint has head by head, and the trainer section by section: those of gated projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Regrouping:
    """How the rows of one member are ordered on either side.

    In each of `stretches` equal parts of it, the checkpoint has `heads` heads, and in each of them one run of rows for
    each of `sections`, which are sizes: a head's query, then its gate. The trainer has one section after the other, and
    in each all heads.
    """

    stretches: int
    heads: int
    sections: tuple[int, ...]

    def to_checkpoint(self, rows: torch.Tensor) -> torch.Tensor:
        """The trainer's rows in the checkpoint's order."""
        import torch

        opened = rows.reshape(self.stretches, -1, *rows.shape[1:])
        parts = torch.split(opened, [self.heads * size for size in self.sections], dim=1)
        by_head = [part.reshape(self.stretches, self.heads, -1, *rows.shape[1:]) for part in parts]
        return torch.cat(by_head, dim=2).reshape(rows.shape)

    def to_trainer(self, rows: torch.Tensor) -> torch.Tensor:
        """The checkpoint's rows in the trainer's order."""
        import torch

        opened = rows.reshape(self.stretches, self.heads, sum(self.sections), *rows.shape[1:])
        parts = torch.split(opened, list(self.sections), dim=2)
        return torch.cat([part.flatten(1, 2) for part in parts], dim=1).reshape(rows.shape)
