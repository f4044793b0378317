"""`extends` names nothing that exists.

A plain name is that of a ready policy, which comes with precc. A file of your own is named by its path relative to the
extending file, with its ending `.prec`.

```prec expect=P014
extends "nvfp4_lr"
```

```prec
extends "nvfp4_rl"
```
"""

from precc.diagnostics import Severity

CODE = "P014"
NAME = "unknown-base"
SEVERITY = Severity.ERROR
