"""There is no role of this name.

A role is the part that a tensor plays in a model, whatever the architecture calls it. The roles are `@routed_experts`,
`@shared_experts`, `@attention`, `@linear_attention`, `@mla`, `@indexer`, `@dense_mlp`, `@router`, `@embedding`,
`@lm_head`, `@norm`, `@mtp`, `@vision` and `@audio`.

```prec expect=P009
@experts: nvfp4 per_token
```

```prec
@routed_experts: nvfp4 per_token
```
"""

from precc.diagnostics import Severity

CODE = "P009"
NAME = "unknown-role"
SEVERITY = Severity.ERROR
