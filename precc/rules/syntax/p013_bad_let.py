"""A `let` cannot give its spec this name.

A name is made of letters, digits and `_`. It is no format, scope, clause word or reserved word, so that a spec never
changes its meaning because of a line above.

```prec expect=P013
let nvfp4 = nvfp4 per_token
```

```prec expect=P013
let default = backward dequantized
```

Choose a name of your own for each spec:

```prec
let late = backward dequantized
let early = backward high_precision
@routed_experts: nvfp4, early
@routed_experts in layers[24:]: late
```
"""

from precc.diagnostics import Severity

CODE = "P013"
NAME = "bad-let"
SEVERITY = Severity.ERROR
