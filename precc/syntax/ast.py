"""The abstract syntax of a policy: what the author wrote, each node with its span.

Nothing here is filled in, resolved or checked against a model. Comparison ignores spans, so that two
spellings of one policy have equal trees.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, TypeAlias

from precc.records import field, record
from precc.source import SourceFile, Span


@record
class Node:
    """Anything that stands somewhere in a file."""

    span: Span = field(compare=False, repr=False, kw_only=True)


# --- selectors ---------------------------------------------------------------------------------------


@record
class Name(Node):
    """One path component: plain alternatives, each of which may hold `*`; `q_proj` is one alternative.

    `{gate,up}_proj` is stored expanded: `("gate_proj", "up_proj")`.
    """

    alternatives: tuple[str, ...]

    @property
    def is_literal(self) -> bool:
        """Whether no alternative holds `*`."""
        return not any("*" in text for text in self.alternatives)


@record
class AnyDepth(Node):
    """`**`: any number of components, none included."""


@record
class Bound:
    """One end of a slice: a layer number, or a share of the decoder layers in per cent. Either may count
    from the end (`-8`, `-15%`); `from_end` is kept apart because `-0%` is not `0%`."""

    value: Fraction
    is_share: bool
    from_end: bool


@record
class Indices:
    """`[0]`, `[-1]`, `[3,7,9]`: layers by number."""

    values: tuple[int, ...]


@record
class Slice:
    """`[start:stop]`, half-open, as in Python."""

    start: Bound | None
    stop: Bound | None


@record
class Layers(Node):
    """`layers[…]`: two path components, `layers` and the number of a decoder layer."""

    which: Indices | Slice


Component: TypeAlias = Name | AnyDepth | Layers


@record
class PathSelector(Node):
    """A run of path components."""

    components: tuple[Component, ...]
    optional: bool = False


@record
class RoleSelector(Node):
    """`@role`; `role` has no at sign."""

    role: str
    optional: bool = False


@record
class GroupSelector(Node):
    """`(A, B)`: the union of its members."""

    members: tuple[Selector, ...]
    optional: bool = False


@record
class CombinedSelector(Node):
    """`A in B` or `A except B`."""

    operator: Literal["in", "except"]
    left: Selector
    right: Selector


Selector: TypeAlias = PathSelector | RoleSelector | GroupSelector | CombinedSelector


# --- specs -------------------------------------------------------------------------------------------

BackwardMode: TypeAlias = Literal["native", "high_precision", "dequantized"]


@record
class FourOverSix:
    """`four_over_six [mae|mse] [max 256|448]`; None where the author wrote nothing."""

    error: Literal["mae", "mse"] | None = None
    maximum: Literal[256, 448] | None = None


@record
class Options:
    """What may stand behind an operand, or (belonging to the weights) in a clause of its own."""

    scope: str | None = None
    group: int | None = None
    scales: Literal["fp32", "pow2"] | None = None
    weight_block: tuple[int, int] | None = None
    four_over_six: FourOverSix | None = None
    static: bool = False


@record
class OperandClause(Node):
    """`FORMAT …` (operand None: weights and activations), `weight FORMAT …` or `input FORMAT …`."""

    operand: Literal["weight", "input"] | None
    format: str
    options: Options


@record
class OptionClause(Node):
    """Options in a clause of their own; they amend the weights."""

    options: Options


@record
class BackwardClause(Node):
    """`backward native`, `backward high_precision` or `backward dequantized`."""

    mode: BackwardMode


@record
class SwitchClause(Node):
    """`hadamard` or `stochastic_rounding`."""

    switch: Literal["hadamard", "stochastic_rounding"]


@record
class TrainClause(Node):
    """`train bf16` or `train fake_quant`."""

    mode: Literal["bf16", "fake_quant"]


@record
class ReferenceClause(Node):
    """The name of a `let`."""

    name: str


Clause: TypeAlias = OperandClause | OptionClause | BackwardClause | SwitchClause | TrainClause | ReferenceClause


@record
class Spec(Node):
    """What a rule, a `default` or a `let` gives: clauses in the author's order."""

    clauses: tuple[Clause, ...]


# --- conditions --------------------------------------------------------------------------------------

Comparison: TypeAlias = Literal[">=", "<=", ">", "<"]


@record
class FractionCondition(Node):
    """`fraction(FORMAT) >= 75%`; `bound` is 3/4 there."""

    format: str
    comparison: Comparison
    bound: Fraction


@record
class BitsCondition(Node):
    """`bits_per_weight <= 5.0`."""

    comparison: Comparison
    bound: Fraction


@record
class SizeCondition(Node):
    """`size <= 20 GiB`; `bound` in bytes."""

    comparison: Comparison
    bound: int


@record
class IsCondition(Node):
    """`SELECTOR is FORMAT`, or `is unquantized` (format None)."""

    selector: Selector
    format: str | None


Condition: TypeAlias = FractionCondition | BitsCondition | SizeCondition | IsCondition


# --- statements --------------------------------------------------------------------------------------


@record
class PolicyName(Node):
    """`policy "name"`."""

    name: str


@record
class Extends(Node):
    """`extends "name"`: a shipped policy or a file."""

    target: str


@record
class Let(Node):
    """`let NAME = SPEC`."""

    name: str
    spec: Spec


@record
class Default(Node):
    """`default: SPEC`."""

    spec: Spec


@record
class Rule(Node):
    """`SELECTOR, SELECTOR…: SPEC`."""

    selectors: tuple[Selector, ...]
    spec: Spec


@record
class KvCache(Node):
    """`kv_cache: FORMAT`."""

    format: str


@record
class Setting(Node):
    """`key=value` of a layout line; the value is a word (versions are words, `te=2.20`)."""

    key: str
    value: str


@record
class Layout(Node):
    """`train: key=value…` or `rollout: key=value…`."""

    side: Literal["train", "rollout"]
    settings: tuple[Setting, ...]


@record
class Targets(Node):
    """`targets: te, sglang`."""

    names: tuple[str, ...]


@record
class Expect(Node):
    """`expect CONDITION`."""

    condition: Condition


Statement: TypeAlias = PolicyName | Extends | Let | Default | Rule | KvCache | Layout | Targets | Expect


@record
class Ignore(Node):
    """`# precc: ignore[P204, P301] reason`: silences those codes on its line."""

    codes: tuple[str, ...]
    line: int = field(compare=False)


@record
class File:
    """One parsed file: its statements in order and its ignore comments."""

    source: SourceFile = field(compare=False, repr=False)
    statements: tuple[Statement, ...]
    ignores: tuple[Ignore, ...] = ()
