"""Weights that a server multiplies as one have outer scales of their own.

Gate and up, and q, k and v, are one matrix multiplication there, with one FP32 scale: the largest of theirs, or the
first. The others' numbers are multiplied with a scale that they were not quantized for, and no server says so. The
converter makes the scale of all of them from their common amax; `precc audit` reads those four bytes of each and
compares them.

Convert the source again.
"""

from precc.diagnostics import Severity

CODE = "P611"
NAME = "outer-scales-apart"
SEVERITY = Severity.ERROR
