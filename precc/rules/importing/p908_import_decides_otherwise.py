"""An imported policy would decide otherwise than its source.

Before a policy is written it is compiled, and every tensor is compared with what the source decides. Here one differs.
That is a defect of precc, never of the source, and nothing is written.

Please report it with the file.
"""

from precc.diagnostics import Severity

CODE = "P908"
NAME = "import-decides-otherwise"
SEVERITY = Severity.ERROR
