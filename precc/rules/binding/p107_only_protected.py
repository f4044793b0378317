"""A rule matches protected tensors only, and so decides nothing.

Routers, embeddings, the LM head, norms, biases, towers and multi-token-prediction layers keep their stored precision
until a rule names them. This rule matches some of them, by a wildcard, a layer slice or the role of something larger,
and none that it may decide about.

```prec expect=P107 model=deepseek-v3
eh_proj: mxfp8
```

Name what protects them: an MTP layer or a tower opens to its role, a protected tensor to its own name.

```prec model=deepseek-v3
eh_proj in @mtp: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract.wording import folded_names
from precc.diagnostics import Diagnostic, Severity, warning
from precc.graph.model import Tensor
from precc.resolve.bind import Binding

CODE = "P107"
NAME = "only-protected"
SEVERITY = Severity.WARNING


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every rule that matches something and reaches nothing."""
    for use in binding.uses:
        if use.matched and not use.reached:
            entries = [binding.contract.entries[at] for at in use.matched]
            yield warning(
                CODE,
                f"this rule decides nothing: {folded_names(entries)} are protected",
                use.rule.span,
                help=_opening(entries[0].tensor, use.rule.span.text),
            )


def _opening(tensor: Tensor, text: str) -> str:
    if tensor.outer is not None:
        selector = text.split(":")[0].strip()
        return f"the {tensor.outer.value} part opens to its role: `({selector}) in @{tensor.outer.value}: …`"
    return f"name the tensor itself: `{tensor.path[-1]}: …`"
