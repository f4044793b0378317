"""A built Megatron model, walked: each linear layer that a recipe can reach, and what is in force for it.

Nothing is computed here: Megatron's own functions say which autocast surrounds a layer and which recipe a module's
own parameters put over it, and TransformerEngine says what is then in force. Both are already loaded in the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from precc.records import record
from precc_te.names import Module
from precc_te.running import Running, running

REACHABLE = "te_quant_params"
"""What Megatron gives every linear layer that its recipes reach."""


@record
class Linear:
    """One linear layer: its path with the global number of its decoder layer, its own path, and what makes the
    autocast that surrounds it."""

    path: str
    local: str
    module: Any
    surrounding: Callable[[], AbstractContextManager[Any]]

    @property
    def running(self) -> Running:
        """What it runs now, in training or in evaluation."""
        return self.running_in(self.module.training)

    @property
    def evaluates_apart(self) -> bool:
        """Whether its recipe has a part of its own for evaluation."""
        return getattr(self.module.te_quant_params, "evaluation_recipe", None) is not None

    def running_in(self, training: bool) -> Running:
        """What it runs in training, or in evaluation."""
        return running(*in_force(self.module, self.surrounding(), training), os.environ)


def peeled(model: Any) -> tuple[Any, ...]:
    """The GPTModels of one rank, without what wraps them (DDP, Float16Module): one, or one a virtual chunk.

    Raises TypeError for what has no decoder.
    """
    chunks = model if isinstance(model, list | tuple) else (model,)
    return tuple(map(_peeled, chunks))


def _peeled(chunk: Any) -> Any:
    while not hasattr(chunk, "decoder") and hasattr(chunk, "module"):
        chunk = chunk.module
    if not hasattr(chunk, "decoder"):
        raise TypeError(f"a {type(chunk).__name__} is no GPTModel of Megatron-Core, nor the list of a rank's chunks")
    return chunk


def linears(chunks: Sequence[Any]) -> Iterator[Linear]:
    """Every linear layer of peeled models that a recipe can reach."""
    for chunk in chunks:
        for local, layer in enumerate(chunk.decoder.layers):
            at = f"decoder.layers.{layer.layer_number - 1}"
            yield from _below(layer, f"decoder.layers.{local}", at, partial(_decoder, layer))
        for local, layer in enumerate(_ahead_of(chunk)):
            yield from _below(layer, f"mtp.layers.{local}", f"mtp.layers.{local}", partial(_ahead, layer))


def _ahead_of(chunk: Any) -> Sequence[Any]:
    block = getattr(chunk, "mtp", None)
    return () if block is None else block.layers


def held_layers(chunks: Sequence[Any]) -> tuple[frozenset[int], frozenset[int]]:
    """The global numbers of the decoder layers, and the numbers of the MTP layers, that a rank holds."""
    decoder = (layer.layer_number - 1 for chunk in chunks for layer in chunk.decoder.layers)
    ahead = (number for chunk in chunks for number, _ in enumerate(_ahead_of(chunk)))
    return frozenset(decoder), frozenset(ahead)


def is_held(module: Module, held: tuple[frozenset[int], frozenset[int]]) -> bool:
    """Whether a linear layer stands in one of the decoder layers and MTP layers that a rank holds."""
    layers, ahead = held
    return module.layer in layers if module.mtp is None else module.mtp in ahead


def mtp_inner(chunks: Sequence[Any]) -> str:
    """What this Megatron calls an MTP layer's inner layer."""
    old = any(".transformer_layer." in linear.path for linear in linears(chunks))
    return "transformer_layer" if old else "mtp_model_layer"


def in_force(module: Any, surrounding: AbstractContextManager[Any], training: bool) -> tuple[bool, Any]:
    """Whether a module's forward quantizes inside an autocast, and TransformerEngine's recipe object for it.

    Without gradients, so that leaving the autocast updates no scale.
    """
    import torch
    from megatron.core.extensions import transformer_engine as extension

    with torch.no_grad(), surrounding, extension._get_fp8_autocast_for_quant_params(module.te_quant_params, training):
        state = extension.FP8GlobalStateManager
        enabled = bool(state.is_fp8_enabled())
        return enabled, state.get_fp8_recipe() if enabled else None


def _below(
    layer: Any, local: str, path: str, surrounding: Callable[[], AbstractContextManager[Any]]
) -> Iterator[Linear]:
    for name, module in layer.named_modules():
        if hasattr(module, REACHABLE):
            yield Linear(f"{path}.{name}", f"{local}.{name}", module, surrounding)


def _decoder(layer: Any) -> AbstractContextManager[Any]:
    """What TransformerBlock's forward enters for a decoder layer."""
    from megatron.core.fp4_utils import get_fp4_context
    from megatron.core.fp8_utils import get_fp8_context

    config, number = layer.config, layer.layer_number - 1
    context: AbstractContextManager[Any] = nullcontext()
    if config.fp8:
        context = get_fp8_context(config, -1 if config.fp8_recipe == "delayed" else number)
    elif config.fp4:
        context = get_fp4_context(config, number)
    return context


def _ahead(layer: Any) -> AbstractContextManager[Any]:
    """What MultiTokenPredictionLayer's forward enters: FP8 for the whole layer, never FP4."""
    from megatron.core.fp8_utils import get_fp8_context

    context: AbstractContextManager[Any] = get_fp8_context(layer.config) if layer.config.fp8 else nullcontext()
    return context
