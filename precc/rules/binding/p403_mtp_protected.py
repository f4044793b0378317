"""A multi-token-prediction layer was left in BF16 by protection.

An MTP layer is no decoder layer, and the stages treat it differently: Megatron-Core quantizes it under FP8 and never
under FP4, SGLang serves it as a draft model with rules of its own. So it keeps BF16 on every side until a rule names
it. This is information; it never changes the exit status.

```prec expect=P403 model=deepseek-v3
default: mxfp8
kv_b_proj: bf16
```

Write `@mtp: bf16` to say that it is meant, or name what is to be quantized: `@routed_experts in @mtp: mxfp8`.

```prec model=deepseek-v3
default: mxfp8
kv_b_proj, @mtp: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Entry
from precc.contract.wording import amount
from precc.diagnostics import Diagnostic, Severity, info
from precc.resolve.bind import Binding
from precc.rules.matching import leaves
from precc.syntax.ast import RoleSelector
from precc.syntax.words import Role

CODE = "P403"
NAME = "mtp-protected"
SEVERITY = Severity.INFO


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Once a model: MTP weights that no rule decided, beside decoder layers that are quantized."""
    if _is_mentioned(binding):
        return
    entries = binding.contract.entries
    inside = [e for e in entries if e.tensor.outer is Role.MTP and e.tensor.is_gemm and not e.tensor.protected]
    kept = [entry for entry in inside if not entry.cause.line]
    low = [e for e in entries if e.tensor.layer is not None and e.decision.is_quantized]
    if kept and low:
        layers = sorted({entry.tensor.mtp or 0 for entry in kept})
        yield info(
            CODE,
            f"{amount(len(layers), 'multi-token-prediction layer')} "
            f"(`{'.'.join(kept[0].tensor.path[: kept[0].tensor.outer_depth])}`) left in BF16 by protection",
            low[0].span,
            help=f"`@mtp: bf16` says that it is meant; `{_deciding_line(low)}` would decide otherwise",
        )


def _is_mentioned(binding: Binding) -> bool:
    """Whether some rule speaks of `@mtp`, and so shows that its author thought of it."""
    selectors = (selector for use in binding.uses for selector in use.rule.selectors)
    found = (leaf for selector in selectors for leaf, _ in leaves(selector))
    return any(isinstance(leaf, RoleSelector) and leaf.role == Role.MTP.value for leaf in found)


def _deciding_line(low: list[Entry]) -> str:
    """The rule that would treat the MTP layer's experts, or its linears, like those of the decoder."""
    expert = next((e for e in low if e.tensor.role is Role.ROUTED_EXPERTS), None)
    selector = "@routed_experts in @mtp" if expert else "@mtp"
    decision = (expert or low[0]).decision
    # SGLang's draft models discard an NVFP4 configuration.
    return f"{selector}: {'mxfp8' if decision.weight.format == 'nvfp4' else decision}"
