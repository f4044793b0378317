"""The known model families. Adding one is adding a module here that defines `FAMILY`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from precc.graph.families.expand import sample
from precc.graph.families.table import Family
from precc.graph.model import Tensor

__all__ = ["families", "vocabulary"]


@cache
def families() -> tuple[Family, ...]:
    """Every family, by the names of their modules."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return tuple(module.FAMILY for module in modules if hasattr(module, "FAMILY"))


@cache
def vocabulary() -> tuple[Tensor, ...]:
    """Every kind of tensor that some family has, once: layer 0 or MTP layer 0, expert 0, sizes of one.

    It tells whether a name stands for anything in any known model, and in which role.
    """
    known: dict[tuple[tuple[str, ...], str], Tensor] = {}
    for family in families():
        for tensor in sample(family):
            known.setdefault((tensor.path, tensor.parameter), tensor)
    return tuple(known.values())
