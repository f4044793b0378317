"""A path starts with a word of the language.

`policy`, `extends`, `let`, `default`, `kv_cache`, `targets`, `train`, `rollout`, `expect`, `in`, `except` and `is`
start statements or join selectors. A path cannot start with them, so that a line always means one thing.

```prec expect=P008
train.proj: bf16
```

Behind a dot every word is free, and `**` stands for any number of components, none included:

```prec
**.train.proj: bf16
```
"""

from precc.diagnostics import Severity

CODE = "P008"
NAME = "reserved-word"
SEVERITY = Severity.ERROR
