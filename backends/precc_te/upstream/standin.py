"""A TransformerEngine without kernels: its real recipe classes, and linear layers that note what is in force.

Megatron-Core's own code runs over it on any machine. Whatever else it asks of TransformerEngine is fabricated: a class
that does nothing. So are Megatron's kernels in Triton where that is not installed.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = "transformer_engine"
RECIPES = f"{ROOT}.common.recipe"
KERNELS = ("megatron.core.transformer.moe.ops.paged_stash",)
"""Megatron's modules of Triton kernels that it imports whether there is Triton or not."""
DELTA_RULE = "fla"
"""The kernels of gated delta nets, without which Megatron builds none; building one calls none of them."""


class Fabricated(types.ModuleType):
    """A module that has any class, and below it any module, that one asks for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.islower():
            return importlib.import_module(f"{self.__name__}.{name}")
        import torch

        made = type(name, (torch.nn.Module,), {})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every module at or below some roots is fabricated."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = tuple(f"{root}." for root in roots)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if f"{name}.".startswith(self._roots):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return Fabricated(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


class State:
    """What TransformerEngine knows of the autocast in force: whether it quantizes, and its recipe."""

    stack: list[tuple[bool, Any]] = [(False, None)]  # noqa: RUF012 - one a process, as in TransformerEngine
    quantizes_weights = False

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        return cls.stack[-1][0]

    @classmethod
    def get_fp8_recipe(cls) -> Any:
        return cls.stack[-1][1]


@contextlib.contextmanager
def autocast(enabled: bool = True, fp8_recipe: Any = None, recipe: Any = None, **_: Any) -> Iterator[None]:
    """TransformerEngine's context, as far as Megatron's decisions see it."""
    State.stack.append((enabled, fp8_recipe or recipe))
    try:
        yield
    finally:
        State.stack.pop()


@contextlib.contextmanager
def fp8_model_init(enabled: bool = True, **_: Any) -> Iterator[None]:
    """Layers that are built inside keep their weights quantized only."""
    before, State.quantizes_weights = State.quantizes_weights, enabled
    try:
        yield
    finally:
        State.quantizes_weights = before


def install(version: str) -> None:
    """This puts the stand-in in place of the TransformerEngine of that version, with its real recipe classes.

    Raises ImportError where that is not installed.
    """
    recipes = load_recipes()
    kernels = () if importlib.util.find_spec("triton") else KERNELS
    delta_rule = () if importlib.util.find_spec(DELTA_RULE) else (DELTA_RULE,)
    sys.meta_path.insert(0, Finder((ROOT, *kernels, *delta_rule)))
    engine, common, pytorch, fp8, quantization, offload = (
        importlib.import_module(f"{ROOT}{name}")
        for name in ("", ".common", ".pytorch", ".pytorch.fp8", ".pytorch.quantization", ".pytorch.cpu_offload")
    )
    _set(engine, __version__=version, common=common, pytorch=pytorch)
    _set(common, recipe=recipes)
    _set(pytorch, fp8=fp8, quantization=quantization)
    for module in (fp8, quantization, pytorch):
        _set(module, FP8GlobalStateManager=State, fp8_autocast=autocast, autocast=autocast)
        _set(module, fp8_model_init=fp8_model_init, quantized_model_init=fp8_model_init)
    _set(offload, get_cpu_offload_context=lambda *_, **__: (contextlib.nullcontext(), None))
    _set(pytorch, **layers())


def load_recipes() -> types.ModuleType:
    """The real module of recipe classes, loaded from its file: the package itself wants CUDA libraries."""
    found = importlib.util.find_spec(ROOT)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"no {ROOT}")
    source = Path(found.submodule_search_locations[0]) / "common" / "recipe" / "__init__.py"
    spec = importlib.util.spec_from_file_location(RECIPES, source)
    if spec is None or spec.loader is None:
        raise ImportError(f"no {RECIPES}")
    recipes = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = recipes
    spec.loader.exec_module(recipes)
    return recipes


def define_recipes_anew() -> None:
    """This runs the recipe classes' module again: they read the environment once, when they are defined."""
    spec = sys.modules[RECIPES].__spec__
    if spec is None or spec.loader is None:
        raise ImportError(f"no {RECIPES}")
    spec.loader.exec_module(sys.modules[RECIPES])


def _set(module: types.ModuleType, **members: Any) -> None:
    for name, member in members.items():
        setattr(module, name, member)


def layers() -> dict[str, Any]:
    """The linear layers, which note the autocast that surrounds them, and norms."""
    import torch

    class Linear(torch.nn.Module):
        def __init__(self, in_features: int, out_features: int, *_: Any, parallel_mode: Any = None, **__: Any) -> None:
            super().__init__()
            self.in_features, self.out_features, self.parallel_mode = in_features, out_features, parallel_mode
            self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, device="meta"))
            self.use_bias = self.save_original_input = self.sequence_parallel = False
            self.weight_is_quantized = State.quantizes_weights

        def forward(self, *_: Any, **__: Any) -> Any:
            self.seen = State.stack[-1]
            return torch.zeros(1)

    class Grouped(Linear):
        def __init__(self, num_gemms: int, *rest: Any, **named: Any) -> None:
            super().__init__(*rest, **named)
            self.num_gemms = num_gemms
            del self.weight
            for number in range(num_gemms):
                shape = self.out_features, self.in_features
                setattr(self, f"weight{number}", torch.nn.Parameter(torch.empty(shape, device="meta")))

        def init_fp8_metadata(self, **_: Any) -> None:
            """Nothing to prepare."""

    class Norm(torch.nn.Module):
        def __init__(self, hidden_size: int = 1, *_: Any, **__: Any) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(hidden_size))

        def forward(self, tensor: Any) -> Any:
            return tensor

    silent = {name: type(name, (Silent,), {}) for name in ("DotProductAttention", "Fp8Padding", "Fp8Unpadding")}
    return {
        "Linear": Linear,
        "LayerNormLinear": type("LayerNormLinear", (Linear,), {}),
        "GroupedLinear": Grouped,
        "LayerNorm": type("LayerNorm", (Norm,), {}),
        "RMSNorm": type("RMSNorm", (Norm,), {}),
        **silent,
    }


class Silent:
    """A layer that takes any arguments."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        import torch

        return torch.nn.Identity()
