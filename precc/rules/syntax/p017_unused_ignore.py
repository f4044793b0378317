"""A comment ignores a code that is not found on its line.

`# precc: ignore[P204] reason` silences one finding, where it stands. When the finding is gone the comment would hide
the next one, which may be another mistake. Only a compile for all targets of the policy can tell, so only that
reports it.

```text
default: bf16  # precc: ignore[P105] nothing looks like a regular expression here
```

Remove the comment, or the code from its list:

```prec
default: bf16
```
"""

from precc.diagnostics import Severity

CODE = "P017"
NAME = "unused-ignore"
SEVERITY = Severity.WARNING
