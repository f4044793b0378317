"""A value is not one that may stand there.

Parallel sizes and group sizes are whole numbers from 1 on; versions start with a digit; scales are `fp32` or `pow2`;
the weight block is `16x16`; the maximum of `four_over_six` is 256 or 448; the KV cache is `bf16` or `fp8`; an `expect`
compares a fraction with a percentage, and a size with a number and a unit such as `GiB`.

```prec expect=P011
experts.*: nvfp4 per_token four_over_six max 300
```

```prec expect=P011
expect fraction(nvfp4) >= 0.75
```

```prec
experts.*: nvfp4 per_token four_over_six max 448
expect fraction(nvfp4) >= 75%
```
"""

from precc.diagnostics import Severity

CODE = "P011"
NAME = "bad-value"
SEVERITY = Severity.ERROR
