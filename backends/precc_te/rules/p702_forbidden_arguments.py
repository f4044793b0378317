"""A training job has an argument under which Megatron would not run the contract.

Some of Megatron's arguments change silently what a recipe does: parameter gather makes BF16 layers run on dequantized
weights, the operator fuser builds MLPs that ignore the per-module recipes, and the schedule that overlaps expert
communication never enters the FP4 autocast.

precc writes no such argument, and a compile does not see the others of a job. `env.json` lists them for the launcher
under `forbidden_arguments`; the finding appears where the arguments of a job are checked. Leave the argument out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from precc.contract import Contract
from precc.diagnostics import Diagnostic, Severity, error
from precc_te.forbidden import forbidden_arguments
from precc_te.modules import modules_of
from precc_te.plan import global_mode

CODE = "P702"
NAME = "te-forbidden-arguments"
SEVERITY = Severity.ERROR


def check(contract: Contract) -> Iterator[Diagnostic]:
    """A contract alone cannot show it: see `check_arguments`."""
    yield from ()


def check_arguments(contract: Contract, words: Iterable[str]) -> Iterator[Diagnostic]:
    """One finding for each argument of a training job that defeats its contract."""
    given = {word.partition("=")[0] for word in words}
    for each in forbidden_arguments(global_mode(set(modules_of(contract).quantized))):
        if each.argument in given:
            message = f"under {each.argument} Megatron does not run this contract: {each.why}"
            yield error(CODE, message, help=f"leave {each.argument} out")
