"""Defaults, filled once: clauses become a decision, and each part remembers the rule that set it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from precc.formats.decision import Backward, Decision, FourOverSix, Quantization, Train
from precc.formats.table import FORMATS, Format
from precc.records import replace
from precc.syntax.ast import (
    BackwardClause,
    Clause,
    OperandClause,
    OptionClause,
    Options,
    SwitchClause,
    TrainClause,
)

if TYPE_CHECKING:
    from precc.contract.entry import Cause
    from precc.resolve.policy import PolicyRule

UNQUANTIZED = Quantization("bf16")


class Draft:
    """A decision in the making: what rules said so far, with the rule behind each part."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.weight = UNQUANTIZED
        self.input = UNQUANTIZED
        self.backward: Backward | None = None
        self.train: Train | None = None
        self.switches: frozenset[str] = frozenset()
        self.causes: dict[str, Cause] = {}

    def apply(self, rule: PolicyRule) -> None:
        """A rule with a format replaces everything; one without amends."""
        cause = rule.cause
        if rule.sets_format:
            self._clear()
            self.causes = {"weight": cause, "input": cause}
        for clause in sorted(rule.clauses, key=_is_option):
            self._apply(clause, cause)

    def _apply(self, clause: Clause, cause: Cause) -> None:
        match clause:
            case OperandClause(operand="input"):
                self._set(cause, input=input_operand(clause))
            case OperandClause(operand="weight"):
                self._set(cause, weight=weight_operand(clause))
            case OperandClause():
                self._set(cause, weight=weight_operand(clause), input=input_operand(clause))
            case OptionClause(options=options):
                amended = with_options(self.weight, options, "weight")
                if amended != self.weight:
                    self._set(cause, weight=amended)
            case BackwardClause(mode=mode):
                self._set(cause, backward=mode)
            case TrainClause(mode=mode):
                self._set(cause, train=mode)
            case SwitchClause(switch=switch):
                self._set(cause, switches=self.switches | {switch})

    def _set(self, cause: Cause, **parts: object) -> None:
        for name, value in parts.items():
            setattr(self, name, value)
            self.causes[name] = cause

    def decision(self) -> Decision:
        """The decision, without the parts that cannot apply (a backward mode on BF16)."""
        quantized = self.weight.is_quantized or self.input.is_quantized
        train = self.train if quantized else None
        trains = quantized and train is None and self.input.is_quantized
        backward = (self.backward or default_backward(self.input)) if trains else None
        # Both act on the operands of a quantized backward pass only.
        switched = self.switches if backward == "native" and self.weight.format == "nvfp4" else ()
        return Decision(
            weight=self.weight,
            input=self.input,
            backward=backward,
            train=train,
            hadamard="hadamard" in switched,
            stochastic_rounding="stochastic_rounding" in switched,
        )


def _is_option(clause: Clause) -> bool:
    """Options of a clause of their own amend the operands of the same spec, wherever they stand in it."""
    return isinstance(clause, OptionClause)


def default_backward(operand: Quantization) -> Backward:
    """Per-token NVFP4 has no native backward; everything else that trains has."""
    return "high_precision" if (operand.format, operand.scope) == ("nvfp4", "per_token") else "native"


def weight_operand(clause: OperandClause) -> Quantization:
    """The weight that a clause names, defaults filled."""
    form = FORMATS[clause.format]
    plain = Quantization(form.name, form.weight_block, form.block_scale, form.weight_scope)
    return with_options(plain, clause.options, "weight")


def input_operand(clause: OperandClause) -> Quantization:
    """The input that a clause names, defaults filled; unquantized for a weight-only format."""
    form = FORMATS[clause.format]
    if form.weight_only and clause.operand is None:
        return UNQUANTIZED
    plain = Quantization(form.name, form.input_block, form.block_scale, form.input_scope)
    return with_options(plain, clause.options, "input")


def with_options(operand: Quantization, options: Options, side: str) -> Quantization:
    """The operand with those options that its format has on that side; the rest is left out."""
    form = FORMATS[operand.format]
    if options.scope in (form.weight_scopes if side == "weight" else form.input_scopes):
        operand = replace(operand, scope=options.scope)
    if options.group in form.groups and side == "weight":
        operand = replace(operand, block=(1, options.group))
    if options.scales is not None and form.name == "fp8_block":
        operand = replace(operand, scale=options.scales)
    if options.weight_block is not None and form.name == "nvfp4" and side == "weight":
        operand = replace(operand, block=options.weight_block)
    if options.four_over_six is not None and form.name == "nvfp4":
        said = options.four_over_six
        operand = replace(operand, four_over_six=FourOverSix(said.error or "mae", said.maximum or 256))
    if options.static and side == "input" and form.outer_scale:
        operand = replace(operand, static=True)
    return operand


def impossible(clauses: tuple[Clause, ...]) -> Iterator[tuple[Clause, str]]:
    """The clauses that no format defines in this spec, each with the reason. Only for specs that set a format."""
    formats = [c.format for c in clauses if isinstance(c, OperandClause) and c.operand != "input"]
    weight = FORMATS[formats[0]] if formats else None
    per_token = any(
        isinstance(c, OperandClause) and c.operand != "weight" and default_backward(input_operand(c)) != "native"
        for c in clauses
    )
    for clause in clauses:
        if isinstance(clause, OperandClause):
            for reason in _impossible_options(FORMATS[clause.format], clause.options, clause.operand):
                yield clause, reason
        elif isinstance(clause, OptionClause) and weight is not None:
            for reason in _impossible_options(weight, clause.options, "weight"):
                yield clause, reason
        elif isinstance(clause, SwitchClause) and weight is not None and weight.name != "nvfp4":
            yield clause, f"`{clause.switch}` is a part of NVFP4 training; {weight.name} has none"
        elif isinstance(clause, TrainClause) and clause.mode == "fake_quant" and weight is not None:
            if weight.name != "int4":
                yield clause, f"`train fake_quant` is for int4 weights; {weight.name} is not trained that way"
        elif isinstance(clause, BackwardClause) and clause.mode == "native" and per_token:
            yield clause, "per-token NVFP4 has no native backward; write `backward high_precision` or `dequantized`"


def _impossible_options(form: Format, options: Options, operand: str | None) -> Iterator[str]:
    scopes = {"weight": form.weight_scopes, "input": form.input_scopes}.get(
        operand or "", (*form.weight_scopes, *form.input_scopes)
    )
    if options.scope is not None and options.scope not in scopes:
        allowed = f"it has {' and '.join(dict.fromkeys(scopes))}" if scopes else "it has no scale above its blocks"
        yield f"{form.name} cannot be {options.scope}: {allowed}"
    if options.group is not None and options.group not in form.groups:
        if form.groups:
            yield f"{form.name} has groups of {', '.join(map(str, form.groups))}, not {options.group}"
        else:
            yield f"{form.name} has a fixed block and no group size"
    if options.scales is not None and form.name != "fp8_block":
        yield f"`scales` chooses the scales of fp8_block; those of {form.name} are fixed"
    if options.weight_block is not None and (form.name != "nvfp4" or operand == "input"):
        yield "`weight_block 16x16` is for NVFP4 weights"
    if options.four_over_six is not None and form.name != "nvfp4":
        yield f"`four_over_six` is adaptive NVFP4 scaling; {form.name} has none"
    if options.static and (operand != "input" or not form.outer_scale):
        yield "`static` belongs behind an input format with an FP32 scale: `input fp8 static`"
