"""`miles/` read back by the rules of its four stages.

Nothing of the contract but names, roles and shapes is used. `arguments` are the parsers of the converters and of the
run, `environment` the shell and JSON files, `recipes` Megatron's YAML; `read` puts them together.
"""

from precc_miles.reading.read import read_back

__all__ = ["read_back"]
