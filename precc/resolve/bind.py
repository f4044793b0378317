"""The binding of a policy to a model: the last rule that reaches a tensor decides about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from precc.contract import Cause, Contract, Entry, RolloutLayout, TrainLayout
from precc.formats import BF16, Decision, kept
from precc.graph.model import ModelGraph, Tensor
from precc.graph.selection import Matcher, matcher, reaches, split_experts
from precc.records import record
from precc.resolve.fill import Draft
from precc.resolve.policy import Policy, PolicyRule
from precc.syntax.ast import IsCondition, Layout, Selector

BUILT_IN_DEFAULT = Cause("", 0, "default: bf16")


class RuleUse:
    """What one rule did on a model, as positions in the contract's entries. Compared by identity.

    `matched` are the tensors that its selectors match, `reached` those of them that it may decide about (protection
    opened), `won` those where some part of it is in force.
    """

    def __init__(self, rule: PolicyRule) -> None:
        self.rule = rule
        self.matched: list[int] = []
        self.reached: list[int] = []
        self.won: list[int] = []


@record
class Binding:
    """A policy on a model: the contract, and what each of its rules and defaults did."""

    policy: Policy
    contract: Contract
    uses: tuple[RuleUse, ...]
    defaults: tuple[RuleUse, ...] = ()

    @property
    def model(self) -> ModelGraph:
        return self.contract.model


def bind(policy: Policy, model: ModelGraph) -> Binding:
    """This decides every tensor of a model. Total: it has no way to fail."""
    tensors = split_experts(model.tensors, _selectors(policy))
    if len(tensors) != len(model.tensors):
        model = replace(model, tensors=tensors)
    uses = tuple(RuleUse(rule) for rule in policy.rules)
    defaults = tuple(RuleUse(rule) for rule in policy.defaults)
    matchers = [[matcher(selector, model.layers) for selector in rule.selectors] for rule in policy.rules]
    cascade = _Cascade(defaults, uses, matchers)
    entries = tuple(cascade.decide(at, tensor) for at, tensor in enumerate(tensors))
    contract = Contract(
        model=model,
        policy=policy.name,
        entries=entries,
        kv_cache=policy.kv_cache.format if policy.kv_cache else "bf16",
        train=TrainLayout().with_settings(_settings(policy.train)),
        rollout=RolloutLayout().with_settings(_settings(policy.rollout)),
        targets=policy.targets.names if policy.targets else None,
    )
    return Binding(policy, contract, uses, defaults)


def _settings(layouts: tuple[Layout, ...]) -> dict[str, str]:
    return {setting.key: setting.value for layout in layouts for setting in layout.settings}


def _selectors(policy: Policy) -> Iterator[Selector]:
    for rule in policy.rules:
        yield from rule.selectors
    for expect in policy.expects:
        if isinstance(expect.condition, IsCondition):
            yield expect.condition.selector


class _Outcome(NamedTuple):
    """What some rules decide together: the parts of an entry, and the rules that some part of it comes from."""

    decision: Decision
    cause: Cause
    clauses: tuple[tuple[str, Cause], ...]
    beaten: tuple[Cause, ...]
    winners: tuple[RuleUse, ...]


class _Cascade:
    """The rules of a policy on one model, with the matchers of each.

    What the same rules reach is decided once, and equal decisions are one object.
    """

    def __init__(self, defaults: tuple[RuleUse, ...], uses: tuple[RuleUse, ...], matchers: list[list[Matcher]]) -> None:
        self._defaults = defaults
        self._uses = tuple(zip(uses, matchers, strict=True))
        self._outcomes: dict[tuple[bool, tuple[RuleUse, ...]], _Outcome] = {}
        self._decisions = {BF16: BF16}

    def decide(self, at: int, tensor: Tensor) -> Entry:
        """The entry of a tensor, whose position in the contract is `at`."""
        reached = tuple(self._reached(at, tensor))
        if is_closed(tensor):
            opened = any(use.rule.sets_format for use in reached)
            return self._decided(at, tensor, reached) if opened else _keep(tensor)
        for use in self._defaults:
            use.matched.append(at)
            use.reached.append(at)
        return self._decided(at, tensor, (*self._defaults, *reached))

    def _reached(self, at: int, tensor: Tensor) -> Iterator[RuleUse]:
        for use, tests in self._uses:
            answers = [bits for test in tests if (bits := test(tensor))]
            if answers:
                use.matched.append(at)
                if any(reaches(bits, tensor) for bits in answers):
                    use.reached.append(at)
                    yield use

    def _decided(self, at: int, tensor: Tensor, reached: tuple[RuleUse, ...]) -> Entry:
        key = tensor.is_gemm, reached
        if key not in self._outcomes:
            self._outcomes[key] = _outcome(*key)
        made = self._outcomes[key]
        decision = self._decisions.setdefault(made.decision, made.decision)
        for use in made.winners:
            use.won.append(at)
        return Entry(tensor, decision, made.cause, made.clauses, made.beaten)


def is_closed(tensor: Tensor) -> bool:
    """Whether a tensor keeps its precision until a rule with a format names it."""
    return tensor.protected or tensor.outer is not None or not tensor.is_gemm


def _keep(tensor: Tensor) -> Entry:
    dtype = tensor.dtype if tensor.dtype in ("bf16", "fp16", "fp32") else "bf16"
    decision = BF16 if tensor.is_gemm and dtype == "bf16" else kept(dtype)
    return Entry(tensor, decision, _protected(_protection(tensor)))


@cache
def _protected(by: str) -> Cause:
    return Cause("", 0, f"protected: {by}")


def _protection(tensor: Tensor) -> str:
    if tensor.outer is not None:
        return f"in the {tensor.outer.value} part of the model"
    return tensor.role.value if tensor.role is not None else tensor.part


def _outcome(is_gemm: bool, reached: tuple[RuleUse, ...]) -> _Outcome:
    draft = Draft()
    for use in reached:
        draft.apply(use.rule)
    decision = draft.decision()
    if not is_gemm and not decision.is_quantized:
        decision = kept(decision.weight.format)
    causes = _in_force(draft, decision.to_json())
    in_force = set(causes.values())
    return _Outcome(
        decision=decision,
        cause=causes.get("weight", BUILT_IN_DEFAULT),
        clauses=tuple(causes.items()),
        beaten=tuple(use.rule.cause for use in reversed(reached) if use.rule.cause not in in_force),
        winners=tuple(use for use in reached if use.rule.cause in in_force),
    )


_SWITCHES = ("hadamard", "stochastic_rounding")


def _in_force(draft: Draft, shown: dict[str, object]) -> dict[str, Cause]:
    """The rule behind each part of the decision; parts that were dropped, or filled in, have none."""
    causes = {part: cause for part, cause in draft.causes.items() if part in shown}
    if "switches" in draft.causes:
        causes |= {switch: draft.causes["switches"] for switch in _SWITCHES if switch in shown}
    return causes
