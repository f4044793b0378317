"""Policies extend each other in a circle.

The rules of an extended policy come before those of the file that extends it. In a circle none comes first. The
finding names every file of the circle; the file `a.prec` below is the shortest one, if it extends itself:

```text
extends "a.prec"
```

Move what the files share into one that extends none of them, or extend a ready policy:

```prec
extends "nvfp4_rl"
```
"""

from precc.diagnostics import Severity

CODE = "P015"
NAME = "circular-extends"
SEVERITY = Severity.ERROR
