"""An artifact is missing or malformed, or names what the engine does not have.

Reading an artifact back failed before there was a decision to compare: a file is missing, its syntax is broken, or it
names a module, a configuration or a method that the engine does not know. Engines mostly accept such files and ignore
the line. The finding names the file and the line. No tensor is decided then: the artifacts of that target are refused
as a whole. Compile again to restore them. It cannot be silenced.
"""

from precc.diagnostics import Severity

CODE = "P502"
NAME = "unreadable-artifact"
SEVERITY = Severity.ERROR
