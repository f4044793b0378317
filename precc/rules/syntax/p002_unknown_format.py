"""There is no number format of this name.

The formats are `bf16`, `fp16`, `fp32`, `fp8`, `fp8_block`, `mxfp8`, `mxfp4`, `nvfp4`, `int8` and `int4`; their names
are written in lower case. A word in the place of a format may also be the name of a `let` above.

```prec expect=P002
experts.*: weight nvfp5
```

Write a format of the list, or name the spec before its first use:

```prec
let experts_format = nvfp4 per_token
experts.*: experts_format
```
"""

from precc.diagnostics import Severity

CODE = "P002"
NAME = "unknown-format"
SEVERITY = Severity.ERROR
