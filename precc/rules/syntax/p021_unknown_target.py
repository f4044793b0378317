"""A policy is for a target that is not installed.

`targets:` names backends. They are found among the installed packages, so a lint without a model, which loads none,
does not check them. `precc targets` lists what is installed.

```prec
targets: te, sglang
```
"""

from precc.diagnostics import Severity

CODE = "P021"
NAME = "unknown-target"
SEVERITY = Severity.ERROR
