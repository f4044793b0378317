"""A source says what no policy can say.

Zero points, act-order, channels that are scaled before they are rounded (AWQ, SmoothQuant), group sizes and algorithms
that the language has no word for, more than one input format in one group: a policy that left them out would be another
checkpoint's. So nothing is written.

Import a checkpoint that was made without it, or write the policy for the one that you want.
"""

from precc.diagnostics import Severity

CODE = "P902"
NAME = "no-spelling"
SEVERITY = Severity.ERROR
