"""A line does not follow the grammar.

A policy is a list of statements, one a line: a selector, a colon and a spec, or a statement that starts with a word
such as `default` or `expect`. The finding says what was expected where the line stopped to make sense. Every other
line is still read, so that one run reports each bad line once.

```prec expect=P001
experts.* nvfp4 per_token
```

```prec expect=P001
experts.*: nvfp4 weight_block 16x16 hadamard
```

A comment that should silence a finding and is misspelt is reported too, since it would silence nothing:

```prec expect=P001
experts.*: nvfp4  # precc: ignore P501
```

Put a colon behind the selector, a comma between two clauses, and double quotes around the names of policies:

```prec
policy "my_policy"
experts.*: nvfp4 weight_block 16x16, hadamard
```
"""

from precc.diagnostics import Severity

CODE = "P001"
NAME = "syntax-error"
SEVERITY = Severity.ERROR
