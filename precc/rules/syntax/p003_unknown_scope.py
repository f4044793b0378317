"""There is no scale scope of this name.

A scope says what shares the scale above the blocks, or the only scale: `per_tensor`, `per_token` or `per_channel`. It
stands behind its format.

```prec expect=P003
experts.*: nvfp4 per_tokens
```

```prec
experts.*: nvfp4 per_token
```
"""

from precc.diagnostics import Severity

CODE = "P003"
NAME = "unknown-scope"
SEVERITY = Severity.ERROR
