"""A spec combines what no format defines.

Every format fixes its blocks and the type of its scales, and leaves open what its table entry says
(`precc formats`). MXFP8 has no scale above its blocks, so it cannot be `per_token`; only NVFP4 has a Hadamard
transform; only integers have a group size. Per-token NVFP4 has no native backward pass.

```prec expect=P304
default: mxfp8 per_token
```

```prec expect=P304
experts.*: nvfp4 per_token, backward native
```

Write a scope that the format has, or leave it out:

```prec
default: mxfp8
experts.*: nvfp4 per_token, backward high_precision
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.diagnostics import Diagnostic, Severity, error
from precc.resolve.fill import impossible
from precc.resolve.policy import Policy

CODE = "P304"
NAME = "undefined-combination"
SEVERITY = Severity.ERROR


def check(policy: Policy) -> Iterator[Diagnostic]:
    """Every spec that names a format."""
    for rule in policy.specs:
        if rule.sets_format:
            for clause, reason in impossible(rule.clauses):
                yield error(CODE, reason, clause.span, help="`precc formats` shows what each format has")
