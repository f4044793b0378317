"""A rule gives a low format back to weights that an extended policy had kept high.

An extended policy's exceptions (its last layers, its shared experts) are there for a reason. A rule with a format
in the extending file comes later, so it wins over them; so does a `default` over the extended one.

```prec expect=P106 model=qwen3-30b-a3b
extends "nvfp4_rl"
@routed_experts: nvfp4 per_token
```

To change one clause and keep the exceptions, leave the format out; a spec without a format amends:

```prec model=qwen3-30b-a3b
extends "nvfp4_rl"
@routed_experts: backward dequantized
```

If the exception is to go, say for which tensors: `@routed_experts in layers[-15%:]: nvfp4 per_token`, and silence
this warning on that line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from precc.contract.wording import amount, billions, folded_names, tensors_of
from precc.diagnostics import Diagnostic, Label, Severity, warning
from precc.resolve.bind import Binding, RuleUse
from precc.resolve.fill import Draft
from precc.resolve.policy import PolicyRule

CODE = "P106"
NAME = "undone-exception"
SEVERITY = Severity.WARNING


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every rule of the file itself, and its default, against what the extended policy decides alone."""
    if binding.policy.base is None:
        return
    before = _extended(binding)
    for use in binding.uses:
        if not use.rule.inherited and use.rule.sets_format:
            undone = [at for at in use.won if _is_undone(at, binding, before) and _is_exception(at, use, before)]
            if undone:
                yield _finding(use.rule, undone, binding, before)
    for use in binding.defaults:
        undone = [at for at in use.won if _is_undone(at, binding, before)]
        if undone and not use.rule.inherited and use.rule.sets_format:
            yield _finding(use.rule, undone, binding, before)


class _Before(NamedTuple):
    """What the extended policy alone decides for one entry: whether that is below 16 bits, and the rule behind it."""

    is_low: bool
    rule: PolicyRule | None


def _extended(binding: Binding) -> list[_Before]:
    applied: list[list[PolicyRule]] = [[] for _ in binding.contract.entries]
    for use in (*binding.defaults, *binding.uses):
        if use.rule.inherited:
            for at in use.reached:
                applied[at].append(use.rule)
    decided: dict[tuple[int, ...], _Before] = {}
    for rules in applied:
        key = tuple(map(id, rules))
        if key not in decided:
            decided[key] = _decided(rules)
    return [decided[tuple(map(id, rules))] for rules in applied]


def _decided(rules: list[PolicyRule]) -> _Before:
    draft = Draft()
    for rule in rules:
        draft.apply(rule)
    setting = next((rule for rule in reversed(rules) if rule.sets_format), None)
    return _Before(draft.decision().is_quantized, setting)


def _is_undone(at: int, binding: Binding, before: list[_Before]) -> bool:
    return binding.contract.entries[at].decision.is_quantized and not before[at].is_low


def _is_exception(at: int, use: RuleUse, before: list[_Before]) -> bool:
    """Kept high by a rule of its own; or left high beside tensors that this rule reaches and that were low."""
    rule = before[at].rule
    if rule is not None and rule.selectors:
        return True
    return any(before[other].is_low for other in use.reached)


def _finding(rule: PolicyRule, undone: list[int], binding: Binding, before: list[_Before]) -> Diagnostic:
    entries = [binding.contract.entries[at] for at in undone]
    exceptions = {id(kept): kept for at in undone if (kept := before[at].rule) is not None}
    return warning(
        CODE,
        f"this gives {entries[0].decision.weight.format} to {amount(tensors_of(entries), 'weight')} "
        f"({billions(sum(entry.tensor.parameters for entry in entries))} parameters) that the extended policy had kept "
        f"high: {folded_names(entries)}",
        rule.span,
        labels=tuple(Label(exception.span, "kept high here") for exception in exceptions.values()),
        help="to keep them, leave the format out (a spec without one amends), or restrict the rule"
        + _restriction(before, undone),
    )


def _restriction(before: list[_Before], undone: list[int]) -> str:
    """How the rule would spare what the first undone rule keeps high."""
    kept = next((rule for at in undone if (rule := before[at].rule) is not None and rule.selectors), None)
    if kept is None:
        return ""
    selectors = ", ".join(selector.span.text.rstrip("?") for selector in kept.selectors)
    return f": `… except {selectors}`" if len(kept.selectors) == 1 else f": `… except ({selectors})`"
