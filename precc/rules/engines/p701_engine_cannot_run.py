"""The engine cannot run what is decided.

A format, a scope or a mix is in the language and not in this engine, at this version, on this GPU. precc never
approximates: it refuses, and says which rule and tensors are concerned and what would work. State the versions you
run in the `train:` and `rollout:` lines, or choose `targets:` that can.
"""

from precc.diagnostics import Severity

CODE = "P701"
NAME = "engine-cannot-run"
SEVERITY = Severity.ERROR
