"""Two files of one checkpoint differ.

`config.json` and `hf_quant_config.json` say the same things in two forms, and each has readers that look at no other.
Here they decide tensors, or the KV cache, differently: two engines serve two models from one folder. The policy follows
`config.json`, as servers do.

Find out which one is right (`precc audit` compares with the weights), and write the other again.
"""

from precc.diagnostics import Severity

CODE = "P905"
NAME = "files-of-a-checkpoint-differ"
SEVERITY = Severity.WARNING
