"""A policy whole: extended files pulled in, names replaced by what they stand for, nothing filled in."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from precc.records import field, record
from precc.source import SourceFile, Span
from precc.syntax.ast import Clause, Expect, Ignore, KvCache, Layout, OperandClause, Selector, Targets

if TYPE_CHECKING:
    from precc.contract.entry import Cause


@record
class PolicyRule:
    """A rule, or (without selectors) a `default`: its clauses hold no references any more.

    `inherited` tells that it comes from an extended policy.
    """

    selectors: tuple[Selector, ...]
    clauses: tuple[Clause, ...]
    span: Span
    inherited: bool = False

    @cached_property
    def sets_format(self) -> bool:
        """Whether it replaces the whole decision; otherwise it amends what the tensor had."""
        return any(isinstance(c, OperandClause) and c.operand != "input" for c in self.clauses)

    @cached_property
    def cause(self) -> Cause:
        """The rule as the contract names it."""
        from precc.contract.entry import Cause

        source = self.span.source
        return Cause(source.recorded or source.path, self.span.line, " ".join(self.span.text.split()), self.span)


@record
class Policy:
    """All rules in order, extended ones first; the statements of the extending file replace the extended one's.

    `base` is the name of the extended policy. `defaults` are the default specs in order, extended ones first: the last
    with a format counts, and those behind it amend it.
    """

    name: str
    source: SourceFile = field(repr=False)
    base: str | None = None
    rules: tuple[PolicyRule, ...] = ()
    defaults: tuple[PolicyRule, ...] = ()
    kv_cache: KvCache | None = None
    targets: Targets | None = None
    train: tuple[Layout, ...] = ()
    rollout: tuple[Layout, ...] = ()
    expects: tuple[Expect, ...] = ()
    ignores: tuple[Ignore, ...] = ()

    @property
    def specs(self) -> tuple[PolicyRule, ...]:
        """Every spec of the policy: the defaults first, then the rules."""
        return (*self.defaults, *self.rules)
