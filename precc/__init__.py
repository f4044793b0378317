"""precc: one declarative precision policy for training, serving and conversion of low-precision models."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from precc.api import compile, emit
    from precc.contract import Contract, load_contract

__version__ = "0.1.0"
__all__ = ["Contract", "compile", "emit", "load_contract"]


def __getattr__(name: str) -> object:
    """The public names, loaded when first asked for, so that `precc lint` pays for none of them."""
    if name in ("compile", "emit"):
        from precc import api

        return getattr(api, name)
    if name in ("Contract", "load_contract"):
        from precc import contract

        return getattr(contract, name)
    raise AttributeError(f"module 'precc' has no attribute {name!r}")
