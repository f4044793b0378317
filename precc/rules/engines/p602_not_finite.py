"""A weight holds NaN or Inf.

No low-precision format can hold what such a weight means: one Inf makes the scale of its whole block, or tensor,
infinite and every other element zero, and the server would answer with noise instead of failing. In a tensor that is
copied, a norm or the head, one NaN makes every answer NaN. `precc convert` stops at the first floating tensor that
holds one, quantized or copied, and names it and its file, with the number of such elements and the place of the first;
`precc audit --source` says it of every tensor that it reads there.

Repair the source; most often the training run diverged before this checkpoint, or a file was damaged on its way.
"""

from precc.diagnostics import Severity

CODE = "P602"
NAME = "not-finite"
SEVERITY = Severity.ERROR
