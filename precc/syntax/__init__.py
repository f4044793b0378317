"""The language: from the text of a policy to its abstract syntax, and back to canonical text.

The functions load on first use: a lint needs no formatter, and building the tables must not need the tables.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from precc.syntax.lower import parse
    from precc.syntax.printer import format_source
    from precc.syntax.reading import read_source

__all__ = ["format_source", "parse", "read_source"]

_HOMES = {"format_source": "printer", "parse": "lower", "read_source": "reading"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
