"""The source tools' own code, on a CPU, in a process of its own: what they do to a model that has the same names.

What comes back are plain values. ModelOpt is imported without TransformerEngine and Megatron, whose installed parts are
not those that it looks for; models lie on the meta device.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from precc.graph.model import ModelGraph, Tensor

ABSENT = ("transformer_engine", "megatron")


@contextmanager
def tools(absent: Sequence[str] = ABSENT) -> Iterator[Callable[..., Any]]:
    """A caller of this module's functions in a worker that imports each tool once, some packages taken for absent."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_quiet, initargs=(absent,)) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def _quiet(absent: Sequence[str]) -> None:
    warnings.simplefilter("ignore")
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def linear_layers(graph: ModelGraph) -> tuple[Tensor, ...]:
    """The tensors that a model of `transformers` has as linear layers: no MTP layers, no routers of their own class."""
    return tuple(t for t in graph.tensors if t.is_gemm and t.mtp is None and _is_linear(t) and len(t.shape) == 2)


def _is_linear(tensor: Tensor) -> bool:
    return tensor.part != "router" or tensor.path[-2:] in (("router", "proj"), ("feed_forward", "router"))


def module_names(graph: ModelGraph) -> tuple[str, ...]:
    """Their names, each expert's for itself."""
    return tuple(name for tensor in linear_layers(graph) for name in tensor.modules())


def _model(names: Sequence[str]) -> Any:
    """A tree of modules with linear layers of these names."""
    from torch import nn

    root = nn.Module()
    for name in names:
        *parents, last = name.split(".")
        module = root
        for parent in parents:
            if not hasattr(module, parent):
                module.add_module(parent, nn.Module())
            module = getattr(module, parent)
        module.add_module(last, nn.Linear(256, 256, bias=False, device="meta"))
    return root


# --- compressed-tensors ------------------------------------------------------------------------------


def schemes(names: Sequence[str], config: dict[str, Any]) -> dict[str, dict[str, Any] | None]:
    """The scheme that compressed-tensors gives each layer: its weights' and inputs' arguments, None for none."""
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

    model = _model(names)
    apply_quantization_config(model, QuantizationConfig.model_validate(config), show_progress=False)
    return {name: _scheme(getattr(model.get_submodule(name), "quantization_scheme", None)) for name in names}


def _scheme(found: Any) -> dict[str, Any] | None:
    if found is None:
        return None
    return {side: _told(getattr(found, side)) for side in ("weights", "input_activations")}


_TOLD = ("num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic")


def _told(arguments: Any) -> dict[str, Any] | None:
    return None if arguments is None else {key: getattr(arguments, key) for key in _TOLD}


def presets() -> dict[str, dict[str, Any]]:
    """The presets of compressed-tensors."""
    from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES

    return {name: {side: _told(said) for side, said in scheme.items()} for name, scheme in PRESET_SCHEMES.items()}


# --- ModelOpt ----------------------------------------------------------------------------------------


def quantizers(names: Sequence[str], quant_cfg: Any) -> dict[str, dict[str, Any]]:
    """The state in which ModelOpt leaves the quantizers of each layer."""
    from modelopt.torch.quantization.conversion import replace_quant_module, set_quantizer_by_cfg

    model = _model(names)
    replace_quant_module(model)
    set_quantizer_by_cfg(model, quant_cfg)
    sides = ("weight_quantizer", "input_quantizer")
    return {f"{name}.{side}": _state(getattr(model.get_submodule(name), side)) for name in names for side in sides}


def _state(quantizer: Any) -> dict[str, Any]:
    if hasattr(quantizer, "__len__"):
        return {"enabled": quantizer.is_enabled, "cfg": [_attributes(part) for part in quantizer]}
    return {"enabled": quantizer.is_enabled, "cfg": _attributes(quantizer)}


def _attributes(quantizer: Any) -> dict[str, Any]:
    """Its format in words of a `cfg`."""
    dynamic = {"type": "dynamic"} if getattr(quantizer, "_dynamic", False) and not quantizer.block_sizes else {}
    blocks = {"block_sizes": dict(quantizer.block_sizes)} if quantizer.block_sizes else {}
    return {"num_bits": quantizer.num_bits, "axis": quantizer.axis, **blocks, **dynamic}


def entries(path: str) -> list[dict[str, Any]]:
    """The entries of a shipped recipe, imports resolved by ModelOpt."""
    from modelopt.recipe.loader import load_recipe

    return [
        {
            "name": entry.quantizer_name,
            "parent": entry.parent_class or "",
            "enable": entry.enable,
            "cfg": _dumped(entry.cfg),
        }
        for entry in load_recipe(path).quantize.quant_cfg  # type: ignore[union-attr]
    ]


def _dumped(cfg: Any) -> Any:
    if cfg is None:
        return None
    if isinstance(cfg, list):
        return [_dumped(part) for part in cfg]
    return cfg.model_dump(exclude_unset=True)


# --- SGLang ------------------------------------------------------------------------------------------


def skipped(names: Sequence[str], entries: Sequence[str]) -> list[bool]:
    """Whether SGLang leaves out layers by AutoAWQ's list."""
    from sglang.srt.layers.quantization.awq.awq import is_layer_skipped_awq

    return [is_layer_skipped_awq(name, list(entries)) for name in names]


def overrides(names: Sequence[str], dynamic: dict[str, Any]) -> list[Any]:
    """What GPTQModel's `dynamic` changes for layers, as SGLang reads it: None for nothing, False for left out."""
    from types import SimpleNamespace

    from sglang.srt.layers.quantization.utils import get_dynamic_override

    return [get_dynamic_override(SimpleNamespace(dynamic=dynamic), layer_name=name) for name in names]  # type: ignore[arg-type]


# --- Megatron ----------------------------------------------------------------------------------------


def matched(path: str, names: Sequence[str]) -> list[str | None]:
    """The config that Megatron's own matchers choose for layers."""
    from megatron.core.quantization.quant_config import MatchContext, RecipeConfig

    recipe = RecipeConfig.from_yaml_file(path)
    return [recipe.match_to_config_key(MatchContext(name, layer_number=0)) for name in names]
