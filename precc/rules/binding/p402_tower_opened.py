"""A rule opens a vision or audio tower.

Towers are protected: engines mostly run them in BF16 whatever a configuration says, and their activations have
outliers that low precision hurts. A rule that names the tower decides about it all the same.

```prec
@vision: fp8
```

Restrict the rule to the language model if the tower was not meant:

```prec
@attention: fp8
```
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract.wording import amount, tensors_of
from precc.diagnostics import Diagnostic, Severity, warning
from precc.resolve.bind import Binding
from precc.syntax.words import Role

CODE = "P402"
NAME = "tower-opened"
SEVERITY = Severity.WARNING

_TOWERS = (Role.VISION, Role.AUDIO)


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every rule that gives a low format to tensors of a tower."""
    for use in binding.uses:
        won = [binding.contract.entries[at] for at in use.won]
        opened = [e for e in won if e.tensor.outer in _TOWERS and e.decision.is_quantized]
        if opened:
            tower = opened[0].tensor.outer
            assert tower is not None
            yield warning(
                CODE,
                f"this opens the {tower.value} tower: {amount(tensors_of(opened), 'tensor')} in "
                f"{opened[0].decision.weight.format}",
                use.rule.span,
                help="engines mostly run towers in BF16; silence this on the line if it is meant",
            )
