"""The real SGLang, on a CPU, in a process of its own.

`SGLang` needs three modules that a CPU-only environment lacks: stand-ins for them are put in place before it is
imported, and pytest's own process never sees them. Everything that a test asks for is a function of this module, sent
to the one worker; what comes back are plain values.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

BLACKWELL = (10, 0)
REFUSED = "refused"


@contextmanager
def engine() -> Iterator[Callable[..., Any]]:
    """A caller of this module's functions in the worker, which imports SGLang once."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_boot) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


# --- in the worker: bringing it up -------------------------------------------------------------------


def _boot() -> None:
    warnings.filterwarnings("ignore")
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    _stand_in_torchvision()
    _stand_in("vllm", package=True)
    _stand_in("vllm._custom_ops").rotary_embedding = None  # type: ignore[attr-defined]
    _stand_in_triton()
    _start()


def _stand_in(name: str, package: bool = False) -> ModuleType:
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


def _stand_in_torchvision() -> None:
    if find_spec("torchvision") is not None:
        return
    vision = _stand_in("torchvision", package=True)
    vision.__version__ = "0.28.0"  # type: ignore[attr-defined]
    for name in ("transforms", "transforms.v2", "transforms.functional", "transforms.v2.functional", "io", "ops"):
        module = _stand_in(f"torchvision.{name}", package=True)
        module.__getattr__ = lambda word: getattr(_Anything(), word)  # type: ignore[method-assign]
        parent, _, last = f"torchvision.{name}".rpartition(".")
        setattr(sys.modules[parent], last, module)


def _stand_in_triton() -> None:
    """SGLang brings a stand-in for a platform without triton; it is installed as on that platform."""
    import platform

    import torch

    if find_spec("triton") is not None:
        return
    found = find_spec("sglang")
    assert found is not None
    assert found.submodule_search_locations
    path = Path(found.submodule_search_locations[0]) / "_platform_stubs.py"
    spec = spec_from_file_location("_platform_stubs", path)
    assert spec is not None
    assert spec.loader is not None
    stubs = module_from_spec(spec)
    sys.modules[spec.name] = stubs
    spec.loader.exec_module(stubs)
    stubs._patch_non_blocking = lambda: None  # type: ignore[attr-defined]
    kept = sys.platform, platform.machine, torch.backends.mps.is_available
    try:
        sys.platform, platform.machine = "darwin", lambda: "arm64"  # type: ignore[assignment]
        torch.backends.mps.is_available = lambda: True
        stubs.install_platform_stubs()
    finally:
        sys.platform, platform.machine, torch.backends.mps.is_available = kept  # type: ignore[assignment]


def _start() -> None:
    """One rank of a server on a pretended Blackwell."""
    import torch
    from sglang.srt.distributed import parallel_state
    from sglang.srt.model_loader import loader
    from sglang.srt.runtime_context import (
        SpawnRanks,
        get_parallel,
        override_platform,
        publish,
        reset_context,
    )
    from sglang.srt.server_args import ServerArgs

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    torch.cuda.get_device_capability = lambda *_, **__: BLACKWELL  # type: ignore[assignment]
    loader.get_device_capability = lambda *_, **__: BLACKWELL
    override_platform(is_blackwell=True, is_sm100=True).install()
    reset_context()
    publish(ServerArgs(model_path="dummy", device="cpu"), role="test", ranks=SpawnRanks(world_rank=0))
    store = f"file://{tempfile.mkdtemp()}/store"
    parallel_state.init_distributed_environment(
        world_size=1, rank=0, local_rank=0, backend="gloo", distributed_init_method=store
    )
    get_parallel().override_permanently(world_group=parallel_state._WORLD)
    parallel_state.initialize_model_parallel(backend="gloo")
    from sglang.srt.layers.moe.utils import initialize_moe_config

    initialize_moe_config()


# --- in the worker: the matchers ---------------------------------------------------------------------


def _or_refused(answer: Callable[[], Any]) -> Any:
    try:
        return answer()
    except ValueError:
        return REFUSED


def skipped(prefix: str, entries: Sequence[str], packed: Mapping[str, list[str]]) -> bool | str:
    """`is_layer_skipped`."""
    from sglang.srt.layers.quantization.utils import is_layer_skipped

    return _or_refused(lambda: is_layer_skipped(prefix, list(entries), packed))  # type: ignore[no-any-return]


def excluded(prefix: str, entries: Sequence[str]) -> bool:
    """`ModelOptQuantConfig.is_layer_excluded`."""
    from sglang.srt.layers.quantization.modelopt_quant import ModelOptFp8Config

    return bool(ModelOptFp8Config(exclude_modules=list(entries)).is_layer_excluded(prefix))


def ignored(prefix: str, entries: Sequence[str], packed: Mapping[str, list[str]]) -> bool | str:
    """`should_ignore_layer`."""
    from sglang.srt.layers.quantization.compressed_tensors.utils import should_ignore_layer

    return _or_refused(lambda: should_ignore_layer(prefix, entries, packed))  # type: ignore[no-any-return]


def target(prefix: str, kind: str, targets: Sequence[str], packed: Mapping[str, list[str]]) -> str | None:
    """`find_matched_target`, for a module of some class."""
    from sglang.srt.layers.quantization.compressed_tensors.utils import find_matched_target

    module = type(kind, (), {})()
    found = _or_refused(lambda: find_matched_target(prefix, module, targets, packed))
    return None if found == REFUSED else found


def mixed(prefix: str, layers: Mapping[str, str], packed: Mapping[str, list[str]]) -> str | None:
    """`ModelOptMixedPrecisionConfig.resolve_quant_algo`."""
    from sglang.srt.layers.quantization.modelopt_quant import ModelOptMixedPrecisionConfig

    config = ModelOptMixedPrecisionConfig.from_config(
        {
            "quant_algo": "MIXED_PRECISION",
            "kv_cache_quant_algo": None,
            "quantized_layers": {name: {"quant_algo": algo} for name, algo in layers.items()},
            "packed_modules_mapping": packed,
        }
    )
    return _or_refused(lambda: config.resolve_quant_algo(prefix))  # type: ignore[no-any-return]


# --- in the worker: the front door -------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """One module of a model that SGLang built: the prefix it asked with, its method, its parameters' dtypes."""

    name: str
    asked: str | None
    method: str
    parameters: Mapping[str, str]


def build(folder: str, arguments: Mapping[str, Any], variables: Mapping[str, str], draft: bool = False) -> list[Built]:
    """The modules of a checkpoint folder's model, built on the meta device by SGLang's own loader functions."""
    kept = dict(os.environ)
    try:
        os.environ.update(variables)
        return _build(folder, arguments, draft)
    finally:
        for name in set(os.environ) - set(kept):
            del os.environ[name]


def _build(folder: str, arguments: Mapping[str, Any], draft: bool) -> list[Built]:
    import torch
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_loader import loader
    from sglang.srt.runtime_context import get_model

    model_config = ModelConfig(
        folder, quantization=arguments.get("quantization"), dtype=arguments["dtype"], is_draft_model=draft
    )
    config = loader._get_quantization_config(model_config, LoadConfig())
    asked: dict[int, str] = {}
    if config is not None:
        _record(type(config), asked)
    built, _ = loader.get_model_architecture(model_config)
    shared = loader.resolve_shared_experts_config(built, model_config.hf_config, config)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"), get_model().override(shared_experts=shared):
            model = built(config=model_config.hf_config, quant_config=config)
    finally:
        torch.set_default_dtype(torch.float32)
        if config is not None:
            type(config).get_quant_method = type(config).get_quant_method.kept
    return [
        Built(name, asked.get(id(module)), _method(module, config), _dtypes(module))
        for name, module in model.named_modules()
        if hasattr(module, "quant_method") or type(module).__name__ == "ParallelLMHead"
    ]


def load(folder: str, arguments: Mapping[str, Any], variables: Mapping[str, str]) -> list[str]:
    """The parameters that SGLang's own loading of a checkpoint folder never wrote."""
    kept = dict(os.environ)
    try:
        os.environ.update(variables)
        return _load(folder, arguments)
    finally:
        for name in set(os.environ) - set(kept):
            del os.environ[name]


def _load(folder: str, arguments: Mapping[str, Any]) -> list[str]:
    import torch
    from safetensors.torch import load_file
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_loader import loader
    from sglang.srt.runtime_context import get_model

    model_config = ModelConfig(folder, quantization=arguments.get("quantization"), dtype=arguments["dtype"])
    config = loader._get_quantization_config(model_config, LoadConfig())
    built, _ = loader.get_model_architecture(model_config)
    shared = loader.resolve_shared_experts_config(built, model_config.hf_config, config)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with get_model().override(shared_experts=shared):
            model = built(config=model_config.hf_config, quant_config=config)
    finally:
        torch.set_default_dtype(torch.float32)
    for parameter in model.parameters():
        _bytes(parameter).fill_(POISON)
    weights = load_file(f"{folder}/model.safetensors")
    loader.DefaultModelLoader.load_weights_only(model, iter(weights.items()), torch.device("cpu"))
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.numel() and (_bytes(parameter) == POISON).float().mean() > 0.3
    ]


POISON = 0x5A


def _bytes(parameter: Any) -> Any:
    import torch

    return parameter.data.reshape(-1).view(torch.uint8)


def _record(kind: Any, asked: dict[int, str]) -> None:
    original = kind.get_quant_method

    def recorded(self: Any, layer: Any, prefix: str, *more: Any, **named: Any) -> Any:
        asked.setdefault(id(layer), prefix)
        return original(self, layer, prefix, *more, **named)

    recorded.kept = original  # type: ignore[attr-defined]
    kind.get_quant_method = recorded


def _dtypes(module: Any) -> dict[str, str]:
    named = module.named_parameters(recurse=False)
    return {name: str(value.dtype).removeprefix("torch.") for name, value in named}


def _method(module: Any, config: Any) -> str:
    """A module's method in the words of the backend's table."""
    method = getattr(module, "quant_method", None)
    kind = type(method).__name__
    own = getattr(method, "quant_config", None)
    if kind.startswith("Unquantized") or method is None:
        return "unquantized"
    if kind in ("Fp8LinearMethod", "Fp8MoEMethod"):
        if own.use_mxfp8:
            return "mxfp8"
        return "fp8_block" if own.weight_block_size == [128, 128] else f"fp8 {own.weight_block_size}"
    if kind in ("ModelOptFp8LinearMethod", "ModelOptFp8MoEMethod"):
        return "fp8_tensor"
    if kind == "ModelOptNvFp4A16LinearMethod":
        return "nvfp4_weights"
    if kind == "ModelOptFp4LinearMethod":
        return "nvfp4_static"
    if kind == "ModelOptNvFp4FusedMoEMethod":
        if own.is_w4a16 or own is getattr(config, "nvfp4a16_config", None):
            return "nvfp4_weights"
        return "nvfp4_token" if own.use_per_token_activation else "nvfp4_static"
    scheme = getattr(module, "scheme", None)
    name = type(scheme).__name__
    if name.startswith("CompressedTensorsWNA16"):
        return f"int4 group {scheme.group_size}"
    if name.startswith("CompressedTensorsW8A8Fp8"):
        return "fp8_channel"
    return f"{kind} {name}"


def parsed_arguments(path: str) -> dict[str, Any]:
    """What SGLang's own parser makes of a `--config` file."""
    import argparse

    from sglang.srt.server_args import ServerArgs
    from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    merged = ConfigArgumentMerger(parser=parser).merge_config_with_args(["--model-path", "m", "--config", path])
    return vars(parser.parse_args(merged))


def known_arguments() -> set[str]:
    """The long names of the arguments that SGLang declares."""
    import argparse

    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return {name.removeprefix("--") for action in parser._actions for name in action.option_strings}


def known_variables() -> set[str]:
    """The environment variables that SGLang declares."""
    from sglang.srt import environ

    return {name for name in dir(environ.envs) if name.isupper()}


def write_checkpoint(folder: Path, config: Mapping[str, Any], artifacts: Mapping[str, str]) -> None:
    """A checkpoint folder without weights: `config.json` with the artifacts' quantization config, and the rest."""
    quantization = json.loads(artifacts["sglang/quantization_config.json"])
    shown = dict(config) if quantization is None else {**config, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(shown))
    legacy = artifacts.get("sglang/hf_quant_config.json")
    if legacy is not None:
        (folder / "hf_quant_config.json").write_text(legacy)
