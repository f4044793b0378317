"""Tensors are missing, extra or written twice.

A checkpoint, and the plan of a conversion, hold each tensor of the contract exactly once. A server that loads them
checks neither: a weight that never comes keeps its initial bytes, and one that nobody asked for is dropped. The
finding names the first of them and their number. From `precc verify` it means that the plan was edited; compile again.
"""

from precc.diagnostics import Severity

CODE = "P603"
NAME = "missing-or-extra-tensors"
SEVERITY = Severity.ERROR
