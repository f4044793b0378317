"""A policy says nothing.

The file holds no statement that decides anything: it is empty, or only comments and a name. Everything would be BF16,
which is hardly what a file was made for; a wrong path or a failed write leaves such files.

```prec expect=P022
# to be written
```

If everything is to stay in BF16, say so:

```prec
default: bf16
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.diagnostics import Diagnostic, Severity, error
from precc.resolve.policy import Policy

CODE = "P022"
NAME = "empty-policy"
SEVERITY = Severity.ERROR


def check(policy: Policy) -> Iterator[Diagnostic]:
    """A file that neither extends another nor states anything."""
    stated = (policy.specs, policy.train, policy.rollout, policy.expects, policy.kv_cache, policy.targets, policy.base)
    if not any(stated):
        yield error(
            CODE,
            "this policy says nothing",
            policy.source.span(0, 0),
            help="write a rule such as `experts.*: nvfp4 per_token`, or `default: bf16` for everything in BF16",
        )
