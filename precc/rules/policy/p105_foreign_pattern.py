"""A pattern looks like one of another tool's lists.

precc matches whole path components of Hugging Face names. Other tools match substrings, regular expressions or their
own module names, so a pattern copied from one of them means something else here, or nothing.

Two habits are recognised: a component wrapped in `*` to find a substring, and a module name of Megatron-Core or of
SGLang.

```prec expect=P105
*kv_b_proj*: bf16
```

```prec expect=P105
linear_kv_up_proj: bf16
```

Write the component itself, by its checkpoint name:

```prec
kv_b_proj: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.diagnostics import Diagnostic, Edit, Fix, Severity, warning
from precc.resolve.policy import Policy
from precc.syntax.ast import CombinedSelector, GroupSelector, Name, Selector

CODE = "P105"
NAME = "foreign-pattern"
SEVERITY = Severity.WARNING

_MEGATRON, _SGLANG = "Megatron-Core", "SGLang"
FOREIGN = {
    "linear_qkv": (_MEGATRON, "{q,k,v}_proj"),
    "linear_proj": (_MEGATRON, "o_proj"),
    "linear_fc1": (_MEGATRON, "{gate,up}_proj"),
    "linear_fc2": (_MEGATRON, "down_proj"),
    "linear_q_proj": (_MEGATRON, "q_proj"),
    "linear_q_down_proj": (_MEGATRON, "q_a_proj"),
    "linear_q_up_proj": (_MEGATRON, "q_b_proj"),
    "linear_kv_down_proj": (_MEGATRON, "kv_a_proj_with_mqa"),
    "linear_kv_up_proj": (_MEGATRON, "kv_b_proj"),
    "linear_k_up_proj": (_MEGATRON, "kv_b_proj"),
    "linear_v_up_proj": (_MEGATRON, "kv_b_proj"),
    "self_attention": (_MEGATRON, "self_attn"),
    "local_experts": (_MEGATRON, "experts"),
    "word_embeddings": (_MEGATRON, "embed_tokens"),
    "output_layer": (_MEGATRON, "lm_head"),
    "qkv_proj": (_SGLANG, "{q,k,v}_proj"),
    "fused_qkv_a_proj_with_mqa": (_SGLANG, "{q_a_proj,kv_a_proj_with_mqa}"),
    "w13_weight": (_SGLANG, "{gate,up}_proj"),
    "w2_weight": (_SGLANG, "down_proj"),
}
"""Module names of engines → the engine, and the components of the checkpoint that it means."""


def check(policy: Policy) -> Iterator[Diagnostic]:
    """Every component of every rule of the file itself."""
    for rule in policy.rules:
        if not rule.inherited:
            for component in _names(rule.selectors):
                yield from _check_component(component)


def _names(selectors: tuple[Selector, ...]) -> Iterator[Name]:
    for selector in selectors:
        if isinstance(selector, GroupSelector):
            yield from _names(selector.members)
        elif isinstance(selector, CombinedSelector):
            yield from _names((selector.left, selector.right))
        else:
            yield from (c for c in getattr(selector, "components", ()) if isinstance(c, Name))


def _check_component(component: Name) -> Iterator[Diagnostic]:
    for word in component.alternatives:
        inner = word.strip("*")
        if word.startswith("*") and word.endswith("*") and inner:
            whole = len(component.alternatives) == 1
            yield warning(
                CODE,
                f"`{word}` looks like a substring pattern; precc matches whole components",
                component.span,
                help=f"write `{inner}` for the component, or `*_{inner}` for names that end so",
                fix=Fix((Edit(component.span, inner),), safe=False) if whole else None,
            )
        elif word in FOREIGN:
            engine, ours = FOREIGN[word]
            yield warning(
                CODE,
                f"`{word}` is {engine}'s name; policies use the names of the checkpoint",
                component.span,
                help=f"write `{ours}`: every target translates it",
                fix=Fix((Edit(component.span, ours),), safe=False),
            )
