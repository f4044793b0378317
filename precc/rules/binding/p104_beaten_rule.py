"""A rule is wholly beaten by later ones.

The last rule that matches a tensor wins. Every tensor that this rule reaches is decided by a later rule, so the rule
decides nothing: usually the two stand in the wrong order.

```prec expect=P104 model=deepseek-v3
kv_b_proj: bf16
@attention: fp8_block
```

Write the exception last:

```prec model=deepseek-v3
@attention: fp8_block
kv_b_proj: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.diagnostics import Diagnostic, Label, Severity, warning
from precc.resolve.bind import Binding, RuleUse

CODE = "P104"
NAME = "beaten-rule"
SEVERITY = Severity.WARNING


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every rule of the file itself that names a format and is in force nowhere."""
    for use in binding.uses:
        if use.reached and not use.won and use.rule.sets_format and not use.rule.inherited:
            winners = _winners(use, binding)
            yield warning(
                CODE,
                "this rule decides nothing: later rules win on every tensor that it reaches",
                use.rule.span,
                labels=tuple(Label(winner.rule.span, "wins here") for winner in winners[:3]),
                help="the last rule that matches wins; write exceptions after what they are exceptions to",
            )


def _winners(use: RuleUse, binding: Binding) -> list[RuleUse]:
    reached = set(use.reached)
    return [other for other in binding.uses if other is not use and not reached.isdisjoint(other.won)]
