"""A target refuses an imported policy.

The source was made for one engine; another may not run its formats, or no trainer may multiply in them. The policy says
what the source decides all the same, and names the targets that it compiles for on its `targets:` line. The message has
the first reason of the target that is left out.

For a policy that trains, start from this one and change what the trainer lacks.
"""

from precc.diagnostics import Severity

CODE = "P909"
NAME = "target-refuses-import"
SEVERITY = Severity.WARNING
