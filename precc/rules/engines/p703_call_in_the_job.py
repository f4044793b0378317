"""The job itself has to make a call.

What is decided cannot be said in arguments, recipes or variables of this engine: the code of the job makes it so. The
finding names the tensors and the one call. This is information: `attest` in the job refuses a model for which the call
was not made.
"""

from precc.diagnostics import Severity

CODE = "P703"
NAME = "call-in-the-job"
SEVERITY = Severity.INFO
