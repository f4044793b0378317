"""A file cannot be read as a policy.

It is missing, binary, not UTF-8, larger than 1 MiB, a pipe or a device, has a line longer than 64 KiB, or nests its
selectors more than 64 deep. A policy is a short text; such a file is most often another file under a wrong name. At
most 32 files may extend each other in one chain.

```prec expect=P012
((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((
experts))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))): bf16
```

Give a text file in UTF-8; the pipes that a shell opens, `/dev/stdin` and `<(…)`, are read too. Parentheses are needed
where a list joins `in` or `except`:

```prec
(gate_proj, up_proj) in @routed_experts: nvfp4
```
"""

from precc.diagnostics import Severity

CODE = "P012"
NAME = "unreadable-file"
SEVERITY = Severity.ERROR
