"""The canonical form of a file would not mean the same.

`precc fmt` reads its own result again before it gives it away, and compares both trees and all comments. If they
differ it leaves the file as it is and reports this code. No policy is known that triggers it: it is a defect of the
formatter, and worth a report with the file.

```prec
default: bf16  # any file that parses can be formatted
```
"""

from precc.diagnostics import Severity

CODE = "P020"
NAME = "unfaithful-format"
SEVERITY = Severity.ERROR
