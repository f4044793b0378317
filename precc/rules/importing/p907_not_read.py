"""A part of the source is not read.

It has a key or a flag that an import does not know, or that has no counterpart in a policy. As far as known it changes
no format of a tensor.

Or a part of a source that decides formats was not given. A `quantization_config` alone does not say whether routed
experts of DeepSeek-V4 are in MXFP4 beside block FP8: `expert_dtype` in the whole `config.json` does, and the headers of
the checkpoint do. The policy then has them in block FP8.

Check that nothing you need depends on it, or import the whole `config.json`, or the folder with the shards.
"""

from precc.diagnostics import Severity

CODE = "P907"
NAME = "part-of-source-is-not-read"
SEVERITY = Severity.WARNING
