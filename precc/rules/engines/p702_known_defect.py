"""A known defect of the engine's version would corrupt silently.

The engine accepts the configuration and computes something else: a scale is dropped, a weight is requantized, an
override is ignored. The finding names the version, the tensors and what goes wrong. Use a version without the defect,
or decide the tensors otherwise.
"""

from precc.diagnostics import Severity

CODE = "P702"
NAME = "known-defect"
SEVERITY = Severity.ERROR
