"""`extends` leads out of the project.

A project is the nearest folder above with a `.git` or a `pyproject.toml`, else the folder of the file. What a policy
decides must not depend on files that are not versioned with it, nor on where the project lies on a machine.

```prec expect=P016
extends "../../../../../../../../../../../../elsewhere.prec"
```

Copy the policy into the project, or extend a ready one by its name:

```prec
extends "nvfp4_rl"
```
"""

from precc.diagnostics import Severity

CODE = "P016"
NAME = "extends-leaves-project"
SEVERITY = Severity.ERROR
