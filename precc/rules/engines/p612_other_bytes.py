"""Stored bytes are not what the source becomes.

`precc audit --source` converts each tensor again, with the function that `precc convert` runs, and compares bytes. The
finding names the tensor, the file, how many bytes differ and where the first of them stands; of many tensors of one
kind it shows the first. Two tensors that hold each other's bytes are one finding. A few bytes are damage; whole tensors
are another source, a quantizer with another rounding, or a scale that was put in the wrong place.

Convert the source again, or give the source that the checkpoint was made of.
"""

from precc.diagnostics import Severity

CODE = "P612"
NAME = "other-bytes"
SEVERITY = Severity.ERROR
