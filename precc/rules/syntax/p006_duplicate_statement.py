"""Something stands twice in one file that may stand once.

These are `policy`, `extends`, `default`, `kv_cache`, `train`, `rollout` and `targets`, a `let` of one name, a key of a
layout line, and a target. Which of the two was meant cannot be told, so neither wins silently. A rule may repeat: the
last one that matches a tensor wins.

```prec expect=P006
default: bf16
default: mxfp8
```

```prec
default: mxfp8
```
"""

from precc.diagnostics import Severity

CODE = "P006"
NAME = "duplicate-statement"
SEVERITY = Severity.ERROR
