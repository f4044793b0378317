"""The engine's own code stops on the artifacts.

`--upstream` gives the artifacts to the installed engine. Here it raised an error of its own while it read the
configuration, built the model or loaded a checkpoint of the same structure; the message quotes it. The run would have
stopped at the same place, minutes after it was started. It cannot be silenced.

From a compile it is a defect of precc; please report it with the policy and the model. Until then, write the tensors
that the message names in another format. From `precc verify --upstream` it may also mean that an artifact was edited:
compile again.
"""

from precc.diagnostics import Severity

CODE = "P512"
NAME = "engine-stops"
SEVERITY = Severity.ERROR
