"""A rule of the source reaches more than its words say.

`model.layers.1*` is layer 1 and layers 10 to 19; `re:.*mlp.gate` is every `gate_proj` too; a name that SGLang or
`transformers` reads otherwise than the tool that wrote it is one thing here and another there. The policy decides what
the source's own tool decides.

Add a rule for what was reached by mistake, if it was one.
"""

from precc.diagnostics import Severity

CODE = "P904"
NAME = "source-rule-reaches-beyond"
SEVERITY = Severity.WARNING
