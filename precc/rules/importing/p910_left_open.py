"""A source leaves a part of the decisions open.

What a compile wrote for one engine holds what that engine reads, and no more: a server's files have no backward pass, a
checkpoint's `quantization_config` does not say how the server scales its inputs, a trainer's recipes do not say what is
served below 16 bits. An import takes such a part as the engine has it by itself, or as the language gives it, and says
so here.

Import the folder with all of the target's files, or keep the policy: `contract.json` beside them has every decision.
"""

from precc.diagnostics import Severity

CODE = "P910"
NAME = "source-leaves-open"
SEVERITY = Severity.INFO
