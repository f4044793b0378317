"""A stored tensor has another shape, dtype or scale than the contract says.

The shape and dtype of each tensor are part of what a policy is compiled for: whether blocks divide an axis, and whether
a weight is cast, quantized or kept, follows from them. `precc convert` reads the headers of all shards before it writes
anything, and stops at the first tensor that is otherwise; the finding names the file, the tensor, what it is and what
the contract was compiled for. Another one is an FP8 checkpoint whose `config.json` declares power-of-two block scales
(`scale_fmt: ue8m0`) and that stores others.

Compile the policy for the checkpoint that is converted: give its folder as `--model`.
"""

from precc.diagnostics import Severity

CODE = "P601"
NAME = "unlike-contract"
SEVERITY = Severity.ERROR
