"""An `expect` does not hold.

Expectations are a policy's own tests. They run in `lint --model` and `compile`, and a failing one says what was
measured: the share of parameters in a format, stored bits a weight with scales counted, bytes, or the decisions of
the GEMM weights that a selector matches.

```prec expect=P801 model=qwen3-30b-a3b
experts.*: nvfp4 per_token, backward high_precision
expect fraction(nvfp4) >= 99%
```

```prec model=qwen3-30b-a3b
experts.*: nvfp4 per_token, backward high_precision
expect fraction(nvfp4) >= 75%
```
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from fractions import Fraction

from precc.contract import Contract
from precc.contract.wording import amount, folded_names, tensors_of
from precc.diagnostics import Diagnostic, Severity, error
from precc.graph.selection import matcher, reaches
from precc.resolve.bind import Binding
from precc.rules.matching import leaves
from precc.syntax.ast import BitsCondition, Condition, Expect, FractionCondition, IsCondition, SizeCondition

CODE = "P801"
NAME = "expectation"
SEVERITY = Severity.ERROR

_COMPARE: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def check(binding: Binding) -> Iterator[Diagnostic]:
    """Every expectation, extended ones too."""
    for expect in binding.policy.expects:
        reason = _failure(expect.condition, binding.contract)
        if reason is not None:
            yield _finding(expect, reason)


def _finding(expect: Expect, reason: str) -> Diagnostic:
    said = " ".join(expect.condition.span.text.split())
    return error(CODE, f"expected {said}, but {reason}", expect.span)


def _failure(condition: Condition, contract: Contract) -> str | None:
    """Why a condition does not hold, with what was measured; None if it does."""
    if isinstance(condition, IsCondition):
        return _is_failure(condition, contract)
    measured, shown = _measured(condition, contract)
    return None if _COMPARE[condition.comparison](measured, Fraction(condition.bound)) else shown


def _measured(condition: FractionCondition | BitsCondition | SizeCondition, contract: Contract) -> tuple[Fraction, str]:
    bits = sum(entry.stored_bits for entry in contract.entries)
    if isinstance(condition, SizeCondition):
        return Fraction(bits, 8), f"it is {bits / 8 / 2**30:.2f} GiB ({bits // 8:,} bytes)"
    if isinstance(condition, BitsCondition):
        value = Fraction(bits, contract.model.parameters)
        return value, f"it is {float(value):.3f}"
    low = sum(e.tensor.parameters for e in contract.entries if e.decision.weight.format == condition.format)
    share = Fraction(low, contract.model.parameters)
    return share, f"it is {float(share):.2%} ({low:,} of {contract.model.parameters:,} parameters)"


def _is_failure(condition: IsCondition, contract: Contract) -> str | None:
    test = matcher(condition.selector, contract.model.layers)
    found = [e for e in contract.entries if e.tensor.is_gemm and reaches(test(e.tensor), e.tensor)]
    if not found:
        optional = all(optional for _, optional in leaves(condition.selector))
        return None if optional else "it matches no GEMM weight of this model"
    if condition.format is None:
        wrong = [entry for entry in found if entry.decision.is_quantized]
    else:
        wrong = [entry for entry in found if entry.decision.weight.format != condition.format]
    if not wrong:
        return None
    return (
        f"{amount(tensors_of(wrong), 'weight')} of {tensors_of(found):,} are not: "
        f"{folded_names(wrong)} are {wrong[0].decision} ({wrong[0].cause})"
    )
