"""A rule names a subtree and does not reach all of its matrix multiplications.

A path covers a module and everything below it, except what is protected: routers, the LM head and the projections
that engines always run high keep their precision until a rule names them. `mlp: mxfp8` on a mixture-of-experts
model therefore leaves `mlp.gate` in BF16. That is almost always right, and worth saying.

```prec expect=P103 model=qwen3-30b-a3b
mlp: mxfp8
```

Name what you mean:

```prec model=qwen3-30b-a3b
@routed_experts: mxfp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, warning
from precc.graph.selection import matcher
from precc.resolve.bind import Binding, RuleUse
from precc.rules.matching import leaves
from precc.syntax.ast import Name, PathSelector

CODE = "P103"
NAME = "partial-subtree"
SEVERITY = Severity.WARNING


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every rule of the file itself that gives a low format to a subtree by its name."""
    for use in binding.uses:
        if not use.rule.inherited and use.rule.sets_format and use.won:
            yield from _check_rule(use, binding)


def _check_rule(use: RuleUse, binding: Binding) -> Iterator[Diagnostic]:
    entries = binding.contract.entries
    if not any(entries[at].decision.is_quantized for at in use.won):
        return
    reached = set(use.reached)
    left = [at for at in use.matched if at not in reached and _is_own_protection(entries[at].tensor)]
    for selector in use.rule.selectors:
        for leaf, _ in leaves(selector):
            if isinstance(leaf, PathSelector) and isinstance(leaf.components[-1], Name):
                test = matcher(leaf, binding.model.layers)
                out = [entries[at] for at in left if test(entries[at].tensor)]
                if out and leaf.components[-1].is_literal:
                    yield warning(
                        CODE,
                        f"`{leaf.span.text}` covers {folded_names(out)} too, which stays as it is",
                        leaf.span,
                        help="protected tensors are decided only by a rule that names them; "
                        f"write `@{out[0].tensor.role.value}: …` to do so"
                        if out[0].tensor.role
                        else "protected tensors are decided only by a rule that names them",
                    )


def _is_own_protection(tensor: object) -> bool:
    return bool(getattr(tensor, "is_gemm", False) and getattr(tensor, "outer", None) is None)
