"""What is to be imported is nothing that an import reads.

`precc import` reads a checkpoint's `config.json` and `hf_quant_config.json` (or the folder that holds them), recipes,
trainer files and launch flags. Here the file is missing, no text, no valid JSON or YAML, too large, has one key twice,
or says nothing about precision that is known.

Name the file that the tool wrote. A model's `config.json` without a `quantization_config` is an unquantized model, and
`default: bf16` its policy.
"""

from precc.diagnostics import Severity

CODE = "P901"
NAME = "unreadable-source"
SEVERITY = Severity.ERROR
