"""`te/` read back by the engine's own rules: which precision Megatron and TransformerEngine would give each tensor.

Nothing of the contract but names, roles and shapes is used. `arguments` is Megatron's command line, `environment`
the shell and JSON files, `recipes` its per-module YAML, `numbers` what a pattern can tell apart; `layout` the local
layer and expert numbers of a rank; `engine` puts them together.
"""

from precc_te.reading.engine import read_back

__all__ = ["read_back"]
