"""Weights are in the right format, under another tool's names.

The same NVFP4 weight is `weight`, `weight_scale`, `weight_scale_2` to ModelOpt, and `weight_packed`, `weight_scale`,
`weight_global_scale` (the reciprocal) to compressed-tensors; the scales of MXFP8 and of FP8 blocks are
`weight_scale_inv` to some and `weight_scale` to others. A server takes the names of the method that its configuration
says, and drops the rest in silence. `precc audit` recognizes these layouts, names the tool and the tensors, and
compares nothing else of them: the contract says how its server wants them.

Convert the source again. What another method serves needs that method's names.
"""

from precc.diagnostics import Severity

CODE = "P614"
NAME = "other-layout"
SEVERITY = Severity.ERROR
