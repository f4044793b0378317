"""The engine's own code decides a tensor otherwise.

`--upstream` gives the artifacts to the installed engine: it builds a model of the same structure, and each module that
it builds is compared with the contract. Here the engine's code says something else than precc's model of its rules
did. A run would not be what the policy says. It cannot be silenced.

From a compile it is a defect of precc; please report it with the policy, the model and the engine's version that the
message names. Until then, write the tensor in a format on which both agree. From `precc verify --upstream` it may also
mean that an artifact was edited: compile again. From `precc attest` it means that the process does not run what was
compiled: start it with the emitted arguments, recipe file and environment.
"""

from precc.diagnostics import Severity

CODE = "P511"
NAME = "engine-decides-otherwise"
SEVERITY = Severity.ERROR
