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

from precc.contract import Entry
from precc.contract.wording import amount, billions, folded_names, tensors_of
from precc.diagnostics import Diagnostic, Label, Severity, warning
from precc.resolve.bind import Binding, RuleUse
from precc.resolve.policy import PolicyRule

CODE = "P106"
NAME = "undone-exception"
SEVERITY = Severity.WARNING


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every rule of the file itself, and its default, against the extended policy's high rules."""
    kept = _kept_high(binding)
    for use in binding.uses:
        if not use.rule.inherited and use.rule.sets_format:
            yield from _check_rule(use.rule, use.won, kept, binding)
    yield from _check_default(binding)


def _check_rule(rule: PolicyRule, won: list[int], kept: dict[int, RuleUse], binding: Binding) -> Iterator[Diagnostic]:
    undone = [at for at in won if at in kept and binding.contract.entries[at].decision.is_quantized]
    if undone:
        entries = [binding.contract.entries[at] for at in undone]
        exceptions = list({id(kept[at].rule): kept[at].rule for at in undone}.values())
        labels = tuple(Label(exception.span, "kept high here") for exception in exceptions)
        yield _finding(rule, entries, "that an extended rule had kept high", labels)


def _kept_high(binding: Binding) -> dict[int, RuleUse]:
    """Entry → the extended rule that last gave it an unquantized format."""
    kept: dict[int, RuleUse] = {}
    for use in binding.uses:
        if use.rule.inherited and use.rule.sets_format:
            for at in use.reached:
                if _is_high(use.rule):
                    kept[at] = use
                else:
                    kept.pop(at, None)
    return kept


def _check_default(binding: Binding) -> Iterator[Diagnostic]:
    default, before = binding.policy.default, binding.policy.inherited_default
    if default is None or default.inherited or before is None or not _is_high(before):
        return
    low = [e for e in binding.contract.entries if e.cause == default.cause and e.decision.is_quantized]
    if low:
        label = Label(before.span, "kept high here")
        yield _finding(default, low, "that the extended `default` had kept high", (label,))


def _is_high(rule: PolicyRule) -> bool:
    from precc.resolve.fill import Draft

    draft = Draft()
    draft.apply(rule)
    return not draft.decision().is_quantized


def _finding(rule: PolicyRule, entries: list[Entry], what: str, labels: tuple[Label, ...]) -> Diagnostic:
    parameters = sum(entry.tensor.parameters for entry in entries)
    format_name = entries[0].decision.weight.format
    return warning(
        CODE,
        f"this gives {format_name} to {amount(tensors_of(entries), 'weight')} "
        f"({billions(parameters)} parameters) {what}: {folded_names(entries)}",
        rule.span,
        labels=labels,
        help="to keep the exceptions, leave the format out (a spec without one amends), or restrict the rule: "
        "`… except layers[-15%:]`",
    )
