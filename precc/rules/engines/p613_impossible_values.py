"""Stored codes or scales are none that a quantizer writes.

NaN among the codes or the block scales, a negative block scale in E4M3, an outer scale that is zero, negative or not
finite: a server would compute with it, and answer with NaN or zero. `precc audit` looks at the outer scales that
tensors share, and with `--sample` at all bytes of so many units.

The file was damaged or the weights had diverged. Convert the source again.
"""

from precc.diagnostics import Severity

CODE = "P613"
NAME = "impossible-values"
SEVERITY = Severity.ERROR
