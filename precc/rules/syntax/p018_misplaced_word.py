"""A word has no meaning in its place.

It is the second word of a clause that does not know it (`backward fast`), something unknown behind a format, a measure
that `expect` does not have, or a word that needs another in front of it: a scope or `static` without its format, a
backward mode without `backward`.

```prec expect=P018
experts.*: backward fast
```

```prec expect=P018
experts.*: per_token
```

```prec
experts.*: nvfp4 per_token, backward dequantized
```
"""

from precc.diagnostics import Severity

CODE = "P018"
NAME = "misplaced-word"
SEVERITY = Severity.ERROR
