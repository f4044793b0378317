"""An imported policy needs more than twelve selectors.

Most checkpoints are a default and a few exceptions. This one decides some tensors unlike the others of their kind: an
automatic search chose formats layer by layer, or a list has gaps. The message, and the head of the policy, name the
tensors that need the further selectors.

Nothing is wrong with it. If the gaps were not meant, write the shorter policy.
"""

from precc.diagnostics import Severity

CODE = "P906"
NAME = "long-imported-policy"
SEVERITY = Severity.INFO
