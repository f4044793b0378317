"""`extends` does not come first.

The rules of the extended policy are read before those of the file, and later rules win. So `extends` stands above
everything but `policy`, where a reader sees what the file starts from.

```prec expect=P010
default: bf16
extends "nvfp4_rl"
```

```prec
extends "nvfp4_rl"
default: bf16
```
"""

from precc.diagnostics import Severity

CODE = "P010"
NAME = "statement-out-of-order"
SEVERITY = Severity.ERROR
