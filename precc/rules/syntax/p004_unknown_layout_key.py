"""A layout line has a key or a GPU that is not known.

`train:` knows `gpu`, `tp`, `pp`, `vpp`, `ep`, `etp`, `megatron_core` and `te`; `rollout:` knows `gpu`, `tp`, `pp`,
`ep`, `etp`, `dp`, `sglang` and `flashinfer`. A misspelt key would leave the layout at its default, and shape checks
would then answer for a job that nobody runs.

```prec expect=P004
train: gpu=b200 tpp=4
```

```prec
train: gpu=b200 tp=4
```
"""

from precc.diagnostics import Severity

CODE = "P004"
NAME = "unknown-layout-key"
SEVERITY = Severity.ERROR
