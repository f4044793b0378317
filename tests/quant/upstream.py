"""Other projects' own quantizers, loaded on a CPU: FlashInfer's reference and TransformerEngine's.

Their packages want CUDA parts when they are imported. A bare package stands in for each while the modules that
compute are loaded, and is taken out of `sys.modules` again: other tests may import the real ones.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@contextmanager
def flashinfer(module: str) -> Iterator[Any]:
    """A module of `flashinfer.batch_invariant.quantization`, which imports others while it computes."""
    with _bare("flashinfer"):
        yield importlib.import_module(f"flashinfer.batch_invariant.quantization.{module}")


@contextmanager
def transformer_engine() -> Iterator[Any]:
    """`transformer_engine.pytorch.custom_recipes.reference_nvfp4`, over base classes that hold nothing.

    The base classes come with the compiled part; of them the reference only uses two attributes.
    """
    pytorch = "transformer_engine.pytorch"
    with _bare("transformer_engine", "pytorch", "pytorch.custom_recipes", "pytorch.tensor"):
        bases = ModuleType(f"{pytorch}.quantized_tensor")
        bases.QuantizedTensorStorage, bases.Quantizer = _Storage, _Quantizer  # type: ignore[attr-defined]
        utils = ModuleType(f"{pytorch}.tensor.utils")
        utils.is_custom = lambda _tensor: True  # type: ignore[attr-defined]
        sys.modules |= {bases.__name__: bases, utils.__name__: utils}
        yield importlib.import_module(f"{pytorch}.custom_recipes.reference_nvfp4")


class _Storage:
    pass


class _Quantizer:
    def __init__(self, *, rowwise: bool, columnwise: bool) -> None:
        self.rowwise_usage = rowwise
        self.columnwise_usage = columnwise


_LOADED: dict[str, dict[str, ModuleType]] = {}
"""What each stand-in package held when it was last taken out."""


@contextmanager
def _bare(package: str, *parts: str) -> Iterator[None]:
    """The package without what its `__init__` does, for the time of a block; fails where it is not installed."""
    own = _taken_out(package)
    try:
        sys.modules |= _LOADED[package] if package in _LOADED else dict(_stand_ins(package, parts))
        yield
    finally:
        _LOADED[package] = _taken_out(package)
        sys.modules |= own


def _stand_ins(package: str, parts: Sequence[str]) -> Iterator[tuple[str, ModuleType]]:
    found = find_spec(package)
    if found is None or found.origin is None:
        pytest.fail(f"{package} is not installed: `make test` installs it")
    for part in ("", *parts):
        bare = ModuleType(".".join(filter(None, (package, part))))
        bare.__path__ = [str(Path(found.origin).parent.joinpath(*part.split(".")))]
        yield bare.__name__, bare


def _taken_out(package: str) -> dict[str, ModuleType]:
    """The package's modules, which are no longer in `sys.modules`."""
    names = [name for name in sys.modules if name.split(".")[0] == package]
    return {name: sys.modules.pop(name) for name in names}
