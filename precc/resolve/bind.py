"""The binding of a policy to a model: the last rule that reaches a tensor decides about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from precc.contract import Cause, Contract, Entry, RolloutLayout, TrainLayout
from precc.formats import BF16, kept
from precc.graph.model import ModelGraph, Tensor
from precc.graph.selection import Matcher, matcher, reaches, split_experts
from precc.resolve.fill import Draft
from precc.resolve.policy import Policy, PolicyRule
from precc.syntax.ast import IsCondition, Layout, Selector

BUILT_IN_DEFAULT = Cause("", 0, "default: bf16")


@dataclass
class RuleUse:
    """What one rule did on a model, as positions in the contract's entries.

    `matched` are the tensors that its selectors match, `reached` those of them that it may decide about (protection
    opened), `won` those where some part of it is in force.
    """

    rule: PolicyRule
    matched: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    won: list[int] = field(default_factory=list)


@dataclass(frozen=True)
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
    entries = tuple(_decide(at, tensor, defaults, uses, matchers) for at, tensor in enumerate(tensors))
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


def _decide(
    at: int, tensor: Tensor, defaults: tuple[RuleUse, ...], uses: tuple[RuleUse, ...], matchers: list[list[Matcher]]
) -> Entry:
    reached = []
    for use, tests in zip(uses, matchers, strict=True):
        answers = [bits for test in tests if (bits := test(tensor))]
        if answers:
            use.matched.append(at)
            if any(reaches(bits, tensor) for bits in answers):
                use.reached.append(at)
                reached.append(use)
    if is_closed(tensor):
        return _cascade(at, tensor, reached) if any(use.rule.sets_format for use in reached) else _keep(tensor)
    for use in defaults:
        use.matched.append(at)
        use.reached.append(at)
    return _cascade(at, tensor, [*defaults, *reached])


def is_closed(tensor: Tensor) -> bool:
    """Whether a tensor keeps its precision until a rule with a format names it."""
    return tensor.protected or tensor.outer is not None or not tensor.is_gemm


def _keep(tensor: Tensor) -> Entry:
    dtype = tensor.dtype if tensor.dtype in ("bf16", "fp16", "fp32") else "bf16"
    decision = BF16 if tensor.is_gemm and dtype == "bf16" else kept(dtype)
    return Entry(tensor, decision, Cause("", 0, f"protected: {_protection(tensor)}"))


def _protection(tensor: Tensor) -> str:
    if tensor.outer is not None:
        return f"in the {tensor.outer.value} part of the model"
    return tensor.role.value if tensor.role is not None else tensor.part


def _cascade(at: int, tensor: Tensor, reached: list[RuleUse]) -> Entry:
    draft = Draft()
    for use in reached:
        draft.apply(use.rule)
    decision = draft.decision()
    if not tensor.is_gemm and not decision.is_quantized:
        decision = kept(decision.weight.format)
    causes = _in_force(draft, decision.to_json())
    winners = set(causes.values())
    for use in reached:
        if use.rule.cause in winners:
            use.won.append(at)
    beaten = tuple(use.rule.cause for use in reversed(reached) if use.rule.cause not in winners)
    cause = causes.get("weight", BUILT_IN_DEFAULT)
    return Entry(tensor, decision, cause, tuple(causes.items()), beaten)


_SWITCHES = ("hadamard", "stochastic_rounding")


def _in_force(draft: Draft, shown: dict[str, object]) -> dict[str, Cause]:
    """The rule behind each part of the decision; parts that were dropped, or filled in, have none."""
    causes = {part: cause for part, cause in draft.causes.items() if part in shown}
    if "switches" in draft.causes:
        causes |= {switch: draft.causes["switches"] for switch in _SWITCHES if switch in shown}
    return causes
