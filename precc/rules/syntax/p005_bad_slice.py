"""What stands in the brackets of `layers` chooses no layers.

Brackets belong to `layers` alone. They hold layer numbers, or one half-open slice as in Python, without a step. A
share of the layers ends in `%` and stands in a slice; it is rounded up.

```prec expect=P005
layers[15%]: bf16
```

```prec expect=P005
layers[0:48:2]: bf16
```

Write a slice from or to the share, or list the numbers:

```prec
layers[-15%:]: bf16
layers[0,2,4]: bf16
```
"""

from precc.diagnostics import Severity

CODE = "P005"
NAME = "bad-slice"
SEVERITY = Severity.ERROR
