"""One line of the contract: a tensor, what is decided for it, and the rule that decided."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from precc.formats import Decision, stored_bits
from precc.graph.model import Tensor
from precc.records import field, record
from precc.source import Span


@record
class Cause:
    """Why something is decided: a line of a policy, or (line 0) a fact such as a tensor's protection."""

    file: str
    line: int
    text: str
    span: Span | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file or None, "line": self.line or None, "text": self.text}

    @classmethod
    def from_json(cls, shown: dict[str, Any]) -> Cause:
        return cls(shown["file"] or "", shown["line"] or 0, shown["text"])

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True)
class Entry:
    """A tensor (or range of experts) with its decision.

    `clauses` says for each part of the decision which rule set it, `beaten` are the rules that matched and lost,
    in the order in which they were beaten (the last first).
    """

    tensor: Tensor
    decision: Decision
    cause: Cause
    clauses: tuple[tuple[str, Cause], ...] = ()
    beaten: tuple[Cause, ...] = ()

    @cached_property
    def stored_bits(self) -> int:
        """Bits in a checkpoint that follows the contract, over all experts of the range."""
        axis = self.tensor.contraction if self.tensor.contracted else -1
        return self.tensor.count * stored_bits(self.decision, self.tensor.shape, axis)

    @property
    def span(self) -> Span | None:
        """Where the deciding rule stands."""
        return self.cause.span

    def span_of(self, part: str) -> Span | None:
        """Where the rule stands that set one part (`weight`, `input`, `backward`, `train`…); else the deciding rule."""
        return next((cause.span for set_part, cause in self.clauses if set_part == part), self.span)
