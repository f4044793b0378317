"""An engine would decide differently from the contract.

After emitting, precc reads each target's artifacts back by that engine's own matching rules and compares the result
with the contract, tensor by tensor. This finding is a difference: it names the tensor, what the engine would run,
what the contract says, and the line of the artifact that decided. It cannot be silenced.

From a compile it is a defect of precc; please report it with the policy and the model. From `precc verify` it means
that an artifact was edited, or comes from another compile: compile again.
"""

from precc.diagnostics import Severity

CODE = "P501"
NAME = "engine-disagrees"
SEVERITY = Severity.ERROR
