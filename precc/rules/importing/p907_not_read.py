"""A part of the source is not read.

It has a key or a flag that an import does not know, or that has no counterpart in a policy. As far as known it changes
no format of a tensor.

Check that nothing you need depends on it.
"""

from precc.diagnostics import Severity

CODE = "P907"
NAME = "part-of-source-is-not-read"
SEVERITY = Severity.WARNING
