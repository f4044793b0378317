"""A rule names a part that this model does not have.

The name is known, or the role exists, but this architecture has nothing of the kind: `kv_b_proj` on a model without
multi-head latent attention, layer 70 of 48. The rule does nothing here. That is harmless, and often meant, in a
policy for several models; `?` behind the selector says so.

```prec expect=P102 model=qwen3-30b-a3b
kv_b_proj: bf16
experts.*: nvfp4 per_token
```

Say that it may be missing:

```prec model=qwen3-30b-a3b
kv_b_proj?: bf16
experts.*: nvfp4 per_token
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract.wording import listed
from precc.diagnostics import Diagnostic, Edit, Fix, Severity, warning
from precc.graph.selection import chosen_layers
from precc.resolve.bind import Binding
from precc.rules.matching import leaves, matches_any, misses
from precc.syntax.ast import CombinedSelector, Layers, PathSelector, RoleSelector, Selector, Slice

CODE = "P102"
NAME = "absent-part"
SEVERITY = Severity.WARNING


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every selector without `?` that matches nothing because the model has no such part."""
    for miss in misses(binding):
        bracketed = any(isinstance(component, Layers) for component in miss.selector.components)
        if miss.known and not miss.elsewhere and not miss.optional and not (miss.outside and bracketed):
            yield _absent(miss.selector, f"this model has no `{miss.text}`")
    for use in binding.uses:
        for selector in use.rule.selectors:
            yield from _check_roles(selector, binding)
            yield from _check_indices(selector, binding.model.layers)
            yield from _check_combination(selector, binding)


def _check_roles(selector: Selector, binding: Binding) -> Iterator[Diagnostic]:
    for leaf, optional in leaves(selector):
        if isinstance(leaf, RoleSelector) and not optional and not matches_any(leaf, binding.model):
            yield _absent(leaf, f"this model has no `@{leaf.role}` tensors")


def _check_indices(selector: Selector, layers: int) -> Iterator[Diagnostic]:
    for leaf, optional in leaves(selector):
        components = leaf.components if isinstance(leaf, PathSelector) and not optional else ()
        for component in components:
            if isinstance(component, Layers):
                inside, outside = chosen_layers(component.which, layers)
                if isinstance(component.which, Slice) and not inside and not _is_meant_empty(component.which):
                    yield warning(
                        CODE,
                        f"`{component.span.text}` is no layer of this model's {layers}; the rule does nothing here",
                        component.span,
                        help="slices are half-open, `[start:stop]`; `[-0%:]` is how no layer is written",
                    )
                if outside:
                    yield warning(
                        CODE,
                        f"layer {listed(list(map(str, outside)))} is outside this model's {layers} decoder layers",
                        component.span,
                        help=f"layers go from 0 to {layers - 1}, or from -{layers} to -1",
                    )


def _is_meant_empty(which: Slice) -> bool:
    """A share of nothing, as a policy for several models may have it."""
    bounds = [bound for bound in (which.start, which.stop) if bound is not None]
    return any(bound.is_share and not bound.value for bound in bounds)


def _check_combination(selector: Selector, binding: Binding) -> Iterator[Diagnostic]:
    """`A in B` whose sides both match, but nothing at once."""
    if not isinstance(selector, CombinedSelector) or any(optional for _, optional in leaves(selector)):
        return
    if all(matches_any(leaf, binding.model) for leaf, _ in leaves(selector)) and not matches_any(
        selector, binding.model
    ):
        yield warning(
            CODE,
            f"`{' '.join(selector.span.text.split())}` matches nothing on this model",
            selector.span,
            help="each side matches something, but no tensor is in both",
        )


def _absent(selector: PathSelector | RoleSelector, message: str) -> Diagnostic:
    end = selector.span.source.span(selector.span.end, selector.span.end)
    return warning(
        CODE,
        f"{message}; the rule does nothing here",
        selector.span,
        help="write `?` behind the selector if that is meant",
        fix=Fix((Edit(end, "?"),), safe=False),
    )
