"""A path is not written as paths are.

Names are joined by dots without spaces. Braces hold plain alternatives of one component: no dots, no braces, none of
them empty. `**` stands alone between two dots; inside a component one `*` stands for any run of characters. One `**`
matches any number of components, so that a second next to it says nothing, and a path holds at most eight.

```prec expect=P019
mlp.{gate.proj,up_proj}: bf16
```

```prec expect=P019
mlp . gate: bf16
```

```prec expect=P019
model.**.**.o_proj: bf16
```

```prec
mlp.{gate_proj,up_proj}: bf16
mlp.gate: bf16
model.**.o_proj: bf16
```
"""

from precc.diagnostics import Severity

CODE = "P019"
NAME = "bad-path"
SEVERITY = Severity.ERROR
