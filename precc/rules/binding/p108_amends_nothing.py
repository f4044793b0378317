"""A rule without a format changes nothing.

A spec without a format amends whatever the tensors had. A backward mode needs a format that trains quantized, a
group size an integer format, `four_over_six` NVFP4; on everything else the clause is dropped.

```prec expect=P108 model=qwen3-30b-a3b
default: bf16
@routed_experts: backward dequantized
```

Give the tensors a format, or remove the rule:

```prec model=qwen3-30b-a3b
default: bf16
@routed_experts: nvfp4 per_token, backward dequantized
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, warning
from precc.resolve.bind import Binding

CODE = "P108"
NAME = "amends-nothing"
SEVERITY = Severity.WARNING


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every amending rule, or default, of the file itself that is in force nowhere."""
    for use in (*binding.defaults, *binding.uses):
        if use.reached and not use.won and not use.rule.sets_format and not use.rule.inherited:
            entries = [binding.contract.entries[at] for at in use.reached]
            formats = sorted({entry.decision.weight.format for entry in entries})
            yield warning(
                CODE,
                f"this rule changes nothing: {folded_names(entries, 2)} have {', '.join(formats)}",
                use.rule.span,
                help="a spec without a format amends; the clause does not apply to that format, "
                "or a later rule sets it again",
            )
