"""Two clauses of one spec decide the same thing.

A spec gives an operand one format, and a tensor one backward mode and one training mode. A format without `weight` or
`input` in front of it speaks for both operands. A name stands for the clauses of its `let`, which count as if they were
written in its place.

```prec expect=P007
experts.*: nvfp4, weight mxfp8
```

```prec expect=P007
let small = group 32
experts.*: weight int4 group 128, small
```

Say each thing once, operand by operand where they differ:

```prec
experts.*: weight mxfp8, input fp8
```
"""

from precc.diagnostics import Severity

CODE = "P007"
NAME = "contradictory-clauses"
SEVERITY = Severity.ERROR
