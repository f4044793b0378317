"""SGLang's own way from files to a model: arguments, model configuration, quantization configuration, model class."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from precc_sglang.upstream.releases import boot
from precc_sglang.upstream.wire import Built, Modules, Parameter

RESOLVED = {
    "quantization": "quantization",
    "moe-runner-backend": "moe_runner_backend",
    "fp8-gemm-backend": "fp8_gemm_runner_backend",
    "kv-cache-dtype": "kv_cache_dtype",
    "speculative-moe-runner-backend": "speculative_moe_runner_backend",
}
"""What the engine settles on, by our names and its own."""


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong where another would end the process."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parsed(folder: str, more: tuple[str, ...] = ()) -> argparse.Namespace:
    """What SGLang's own parser makes of a folder's `server.yaml`."""
    from sglang.srt.server_args import ServerArgs

    parser = _Parser()
    ServerArgs.add_cli_args(parser)
    given = ["--model-path", folder, "--config", f"{folder}/server.yaml", *more]
    return parser.parse_args(boot().merged(parser, given))


def misparsed(folder: str, wanted: Mapping[str, str | int | bool]) -> dict[str, tuple[str, str]]:
    """The arguments that the parser gives otherwise than they must be: name → what it is, what it must be."""
    return differing(parsed(folder), wanted)


def differing(arguments: Any, wanted: Mapping[str, str | int | bool]) -> dict[str, tuple[str, str]]:
    """The arguments, as SGLang holds them, that are otherwise than they must be."""
    from sglang.srt.server_args import ServerArgs

    parser = _Parser()
    ServerArgs.add_cli_args(parser)
    fields = {name: action.dest for action in parser._actions for name in action.option_strings}
    found = {name: getattr(arguments, fields[f"--{name}"]) for name in wanted}
    return {name: (str(found[name]), str(value)) for name, value in wanted.items() if found[name] != value}


def server(folder: str) -> Any:
    """The server's arguments after SGLang resolved and checked them, put in force for this process."""
    from sglang.srt.server_args import ServerArgs

    arguments = parsed(folder, ("--device", "cuda", *boot().rank()))
    resolved = ServerArgs.from_cli_args(arguments)
    boot().in_force(resolved)
    return resolved


def settled(resolved: Any) -> dict[str, str]:
    """What the engine settled on: the method and the backends."""
    from sglang.srt.arg_groups.overrides import resolved_view

    view = resolved_view(resolved)
    return {name: str(getattr(view, own, None)) for name, own in RESOLVED.items()}


def cache_dtype(asked: str, model: Any, dtype: Any) -> str:
    """The dtype in which SGLang allocates the KV cache of a model."""
    from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype

    _, chosen = configure_kv_cache_dtype(
        server_args_kv_cache_dtype=asked,
        model=model,
        model_dtype=dtype,
        is_draft_worker=False,
        is_dflash=False,
        speculative_draft_attention_backend="",
    )
    return dtype_word(chosen)


@dataclass(frozen=True)
class Made:
    """A model as the loader builds it, its configuration, and by module (identity) the prefix that it asked with."""

    model: Any
    settings: Any
    asked: Mapping[int, str]


def make(resolved: Any, device: str, draft: bool = False) -> Made:
    """This builds the model that a server's arguments name, or its draft model, on a device."""
    from sglang.srt.configs.model_config import ModelConfig

    return make_from(ModelConfig.from_server_args(resolved, is_draft_model=draft), device)


def make_from(settings: Any, device: str) -> Made:
    """The same from a ModelConfig."""
    import torch
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader import loader

    config = loader._get_quantization_config(settings, LoadConfig())
    built, _ = loader.get_model_architecture(settings)
    asked: dict[int, str] = {}
    with (
        boot().building(built, settings, config),
        torch.device(device),
        _default_dtype(settings.dtype),
        _recorded(type(config), asked),
    ):
        return Made(built(config=settings.hf_config, quant_config=config), settings, asked)


@contextmanager
def _default_dtype(dtype: Any) -> Iterator[None]:
    import torch

    kept = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(kept)


@contextmanager
def _recorded(kind: Any, asked: dict[int, str]) -> Iterator[None]:
    """While it lasts, a configuration class notes who asks it under which prefix."""
    original: Callable[..., Any] | None = getattr(kind, "get_quant_method", None)
    if original is None:
        yield
        return

    def recorded(self: Any, layer: Any, prefix: str, *more: Any, **named: Any) -> Any:
        asked.setdefault(id(layer), prefix)
        return original(self, layer, prefix, *more, **named)

    kind.get_quant_method = recorded
    try:
        yield
    finally:
        kind.get_quant_method = original


def modules(made: Any, asked: Mapping[int, str]) -> Modules:
    """The modules of a model that hold parameters or stored buffers, or have a method, by name."""
    config = getattr(made, "quant_config", None)
    found = {}
    for name, module in made.named_modules():
        parameters = dict(_parameters(module))
        if parameters or hasattr(module, "quant_method"):
            method = getattr(module, "quant_method", None)
            marlin = bool(getattr(method, "use_marlin", False))
            found[name] = Built(asked.get(id(module)), method_of(module, config), marlin, parameters)
    return found


def _parameters(module: Any) -> Iterator[tuple[str, Parameter]]:
    for name, value in (*module.named_parameters(recurse=False), *stored_buffers(module)):
        yield name, Parameter(dtype_word(value.dtype), tuple(value.shape))


def stored_buffers(module: Any, recurse: bool = False) -> Iterator[tuple[str, Any]]:
    """The buffers that a checkpoint may fill, by name, those of inner modules too if it shall `recurse`."""
    for prefix, holder in module.named_modules() if recurse else (("", module),):
        for name, value in holder.named_buffers(recurse=False):
            if name not in holder._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, value


DTYPES = {
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "uint8": "U8",
    "int8": "I8",
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "int32": "I32",
    "int64": "I64",
}
"""torch's names → those of safetensors."""


def dtype_word(dtype: Any) -> str:
    """A torch dtype as safetensors names it."""
    name = str(dtype).removeprefix("torch.")
    return DTYPES.get(name, name)


# --- the method of a module --------------------------------------------------------------------------


def method_of(module: Any, config: Any) -> str:
    """A module's method in the words of the backend's table; the class's own name for one that is not there."""
    method = getattr(module, "quant_method", None)
    kind = type(method).__name__
    if method is None or kind.startswith("Unquantized"):
        return "unquantized"
    named = _METHODS.get(kind)
    if named is not None:
        return named if isinstance(named, str) else named(method, config)
    return _scheme(module, kind)


def _fp8(method: Any, config: Any) -> str:
    own = method.quant_config
    if getattr(method, "is_fp4_expert", False):
        return "mxfp4 in the kernels of fp8"
    if own.use_mxfp8:
        return "mxfp8" if own.weight_block_size == [1, 32] else f"mxfp8 {own.weight_block_size}"
    return "fp8_block" if own.weight_block_size == [128, 128] else f"fp8 {own.weight_block_size}"


def _nvfp4_experts(method: Any, config: Any) -> str:
    own = method.quant_config
    if getattr(own, "is_w4a16", False) or own is getattr(config, "nvfp4a16_config", None):
        return "nvfp4_weights"
    return "nvfp4_token" if own.use_per_token_activation else "nvfp4_static"


def _mxfp4_trtllm(method: Any, config: Any) -> str:
    known = {"default": "mxfp4", "bf16": "mxfp4_weights"}
    return known.get(method.flashinfer_mxfp4_moe_precision, "mxfp4 with fp8 inputs")


def _mxfp4_cutlass(method: Any, config: Any) -> str:
    return "mxfp4 with fp8 inputs" if method._use_sm90_humming else "mxfp4_weights"


_METHODS: Mapping[str, str | Callable[[Any, Any], str]] = {
    "Fp8LinearMethod": _fp8,
    "Fp8MoEMethod": _fp8,
    "Mxfp4MoEMethod": "mxfp4_weights",
    "Mxfp4FlashinferTrtllmMoEMethod": _mxfp4_trtllm,
    "Mxfp4FlashinferCutlassMoEMethod": _mxfp4_cutlass,
    "ModelOptFp8LinearMethod": "fp8_tensor",
    "ModelOptFp8MoEMethod": "fp8_tensor",
    "ModelOptNvFp4A16LinearMethod": "nvfp4_weights",
    "ModelOptFp4LinearMethod": "nvfp4_static",
    "ModelOptNvFp4FusedMoEMethod": _nvfp4_experts,
}


def _scheme(module: Any, kind: str) -> str:
    scheme: Any = getattr(module, "scheme", None)
    name = type(scheme).__name__
    if name.startswith(("CompressedTensorsWNA16", "CompressedTensorsMxInt4")):
        factor = getattr(scheme, "pack_factor", None) or scheme.packed_factor
        return f"int{32 // factor} group {scheme.group_size}"
    if name.startswith("CompressedTensorsW8A8Fp8"):
        return "fp8_channel"
    return f"{kind} {name}"
