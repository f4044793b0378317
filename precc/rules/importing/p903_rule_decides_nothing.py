"""A rule of the source decides nothing.

It reaches no tensor of the model (a name that was cut, renamed, or is another engine's), or other rules of the source
win everything that it reaches. The tool takes no notice, and what the author meant to keep is quantized, or would be on
the next engine. The policy has no rule for it. The published GLM-5-FP8 has 79: `self_attn.indexers_proj`, from which
`.weight` was cut out of `indexer.weights_proj`.

Look for what was meant: `precc plan` shows what the policy decides.
"""

from precc.diagnostics import Severity

CODE = "P903"
NAME = "source-rule-decides-nothing"
SEVERITY = Severity.WARNING
