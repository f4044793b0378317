"""What SGLang imports and a CPU lacks. Only ever in the worker."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any


def install() -> None:
    """This puts stand-ins in place of what is missing, before SGLang is imported.

    torchvision and the web server (imported, never used), vllm's rotary embedding (an attribute), and triton (SGLang
    brings a stand-in of its own, for platforms without it). Megatron-Core, which SGLang's dumper takes along where it
    finds it, counts as absent: it may want a TransformerEngine that loads.
    """
    import torch

    torch.set_num_threads(1)
    _torchvision()
    _web_server()
    _open(sys).modules["megatron.core"] = None
    _module("vllm", package=True)
    _module("vllm._custom_ops").rotary_embedding = None  # type: ignore[attr-defined]
    _triton()


def register() -> None:
    """This registers, once SGLang is imported, the method that it has on a GPU and not on every other platform."""
    from sglang.srt.layers import quantization

    quantization.QUANTIZATION_METHODS.setdefault("mxfp4", quantization.Mxfp4Config)


def _module(name: str, package: bool = False) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None, is_package=package)
    if package:
        module.__path__ = []
    sys.modules[name] = module
    return module


class _Anything:
    """Whatever is asked of a module that is imported and never used."""

    def __init__(self, *arguments: object, **more: object) -> None:
        pass

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


def _torchvision() -> None:
    if find_spec("torchvision") is not None:
        return
    vision = _module("torchvision", package=True)
    vision.__version__ = "0.28.0"  # type: ignore[attr-defined]
    for name in ("transforms", "transforms.v2", "transforms.functional", "transforms.v2.functional", "io", "ops"):
        module = _anything(f"torchvision.{name}")
        parent, _, last = f"torchvision.{name}".rpartition(".")
        setattr(sys.modules[parent], last, module)


def _anything(name: str) -> ModuleType:
    """A module that has whatever is asked of it."""
    module = _module(name, package=True)
    module.__getattr__ = lambda word: getattr(_Anything(), word)  # type: ignore[method-assign]
    return module


def _web_server() -> None:
    """Some model classes import the runner of models, and that the server around it."""
    for package, more in (("uvicorn", ()), ("fastapi", ("fastapi.responses",))):
        if find_spec(package) is None:
            _anything(package)
            for name in more:
                _anything(name)


def _triton() -> None:
    """SGLang's own stand-in is installed as on the platform that it is for."""
    import platform

    import torch

    if find_spec("triton") is not None:
        return
    stubs, mps, machine = _platform_stubs(), _open(torch.backends.mps), _open(platform)
    stubs._patch_non_blocking = lambda: None
    kept = sys.platform, platform.machine, mps.is_available
    try:
        _open(sys).platform, machine.machine, mps.is_available = "darwin", lambda: "arm64", lambda: True
        stubs.install_platform_stubs()
    finally:
        _open(sys).platform, machine.machine, mps.is_available = kept


def _open(module: ModuleType) -> Any:
    """A module whose attributes are replaced."""
    return module


def _platform_stubs() -> Any:
    """SGLang's module of stand-ins, loaded by its file: its package cannot be imported yet."""
    folders = (Path(folder) / "sglang" for folder in sys.path)
    path = next(file for folder in folders if (file := folder / "_platform_stubs.py").is_file())
    spec = spec_from_file_location("_platform_stubs", path)
    assert spec is not None
    assert spec.loader is not None
    stubs = module_from_spec(spec)
    sys.modules[spec.name] = stubs
    spec.loader.exec_module(stubs)
    return stubs
