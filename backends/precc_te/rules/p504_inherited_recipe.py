"""A linear layer would inherit the trainer's engine-wide recipe.

`te_precision.yaml` decides a linear layer by the first matcher whose pattern matches its path in Megatron. A layer
that none matches runs the engine-wide recipe of `--fp8-recipe` or `--fp4-recipe`, which no rule chose for it.

What precc writes ends with a matcher for everything, so that a compile never shows this. It appears when files that
were edited, or written for another model, are verified. Compile the policy for this model again.
"""

from __future__ import annotations

from collections.abc import Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.precision import TePrecision

CODE = "P504"
NAME = "inherited-recipe"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """A contract alone cannot show it: it is found when artifacts are read back."""
    yield from ()


def inherits(path: str, module: str, recipe: TePrecision) -> Diagnostic:
    """The finding for a linear layer that no matcher of a YAML matches."""
    message = f"{path} has no matcher for {module}: it would inherit the engine-wide recipe, {recipe}"
    return error(CODE, message, help="compile the policy for this model again; the files are not edited")
