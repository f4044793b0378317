"""Every check that a user can see: one module a rule, with its page, its code and its check.

The folder says when a rule runs: `syntax` (pages only; the parser finds these), `policy` (one policy, no model),
`binding` (what each rule did on a model), `contract` (what was decided), `engines` (pages only; backends find
these, and add sections of their own), `importing` (pages only; `precc import` finds these). A module holds its page as
docstring, `CODE`, `NAME`, `SEVERITY` and, where the folder checks something, `check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from os import listdir
from types import ModuleType
from typing import TYPE_CHECKING

from precc.diagnostics import Diagnostic

if TYPE_CHECKING:
    from precc.contract import Contract
    from precc.resolve.bind import Binding
    from precc.resolve.policy import Policy

STAGES = ("syntax", "policy", "binding", "contract", "engines", "importing")


def modules(package: str) -> Iterator[ModuleType]:
    """The rule modules of a package, by name. A rule is registered by lying there."""
    found = import_module(package)
    names = {name.removesuffix(".py") for folder in found.__path__ for name in listdir(folder)}
    for name in sorted(names):
        if name[0] == "p" and name[1:2].isdecimal():
            yield import_module(f"{package}.{name}")


def check_policy(policy: Policy) -> Iterator[Diagnostic]:
    """What one policy shows by itself."""
    for rule in modules("precc.rules.policy"):
        yield from rule.check(policy)


def check_binding(binding: Binding) -> Iterator[Diagnostic]:
    """What the rules of a policy did on a model."""
    for rule in modules("precc.rules.binding"):
        yield from rule.check(binding)


def check_contract(contract: Contract) -> Iterator[Diagnostic]:
    """What was decided."""
    for rule in modules("precc.rules.contract"):
        yield from rule.check(contract)


def check_backend(package: str, contract: Contract) -> Iterator[Diagnostic]:
    """What an engine has to say about a contract."""
    for rule in modules(package):
        yield from rule.check(contract)
