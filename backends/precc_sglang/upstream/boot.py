"""One rank of SGLang 0.5.23 on a pretended GPU. Only ever in the worker."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BLACKWELL = 100


def start() -> None:
    """This makes the process the only rank of a server."""
    from sglang.srt.distributed import parallel_state
    from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish
    from sglang.srt.server_args import ServerArgs

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    publish(ServerArgs(model_path="dummy", device="cpu"), role="test", ranks=SpawnRanks(world_rank=0))
    parallel_state.init_distributed_environment(
        world_size=1,
        rank=0,
        local_rank=0,
        backend="gloo",
        distributed_init_method=f"file://{tempfile.mkdtemp()}/store",
    )
    get_parallel().override_permanently(world_group=parallel_state._WORLD)
    parallel_state.initialize_model_parallel(backend="gloo")


@contextmanager
def gpu(capability: int) -> Iterator[None]:
    """This pretends a GPU of a compute capability, times ten, which any snapshots of recurrent states fit.

    Classes may make streams for what a forward pass overlaps; none is run here. FlashInfer, which the engine requires,
    is there on any.
    """
    import torch
    from sglang.srt.arg_groups import mamba_hook
    from sglang.srt.layers.quantization import mxfp4_flashinfer_cutlass_moe
    from sglang.srt.model_loader import loader
    from sglang.srt.runtime_context import override_platform

    pair = divmod(capability, 10)
    cuda: Any = torch.cuda
    cuda.get_device_capability = lambda *_, **__: pair
    cuda.Stream = object
    loader.get_device_capability = lambda *_, **__: pair
    mamba_hook._platform_supports_mamba_cache_extra_buffer = lambda: True
    mxfp4_flashinfer_cutlass_moe.is_flashinfer_available = lambda: True
    blackwell = capability >= BLACKWELL
    facts = {"is_blackwell": blackwell, "is_sm100": blackwell, "is_sm100_or_sm110": blackwell}
    with override_platform(**facts, is_sm90=not blackwell, is_hopper_with_cuda_12_3=not blackwell):
        yield


def rank() -> tuple[str, ...]:
    """The arguments that make a server one rank, whatever its layout says."""
    return ("--tp-size", "1", "--pp-size", "1", "--ep-size", "1", "--attn-dp-size", "1")


def merged(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """These words with what the file of `--config` stands for in front."""
    from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

    return list(ConfigArgumentMerger(parser=parser).merge_config_with_args(words))


def in_force(arguments: Any) -> None:
    """This resolves a server's arguments, and puts them in force for this process."""
    from sglang.srt.layers.moe.utils import initialize_moe_config
    from sglang.srt.runtime_context import SpawnRanks, publish

    arguments.resolve_once()
    publish(arguments, role="test", ranks=SpawnRanks(world_rank=0))
    initialize_moe_config()


def current() -> Any:
    """The server's arguments that are in force in this process."""
    from sglang.srt.runtime_context import get_server_args

    return get_server_args()


@contextmanager
def building(kind: Any, settings: Any, config: Any) -> Iterator[None]:
    """While it lasts, a model class may be built; the rotary embedding alone allocates on the server's own device."""
    from sglang.srt.model_loader import loader
    from sglang.srt.runtime_context import get_device, get_model

    _rotate_unscaled()
    shared = loader.resolve_shared_experts_config(kind, settings.hf_config, config)
    with get_device().override(device="cpu"), get_model().override(shared_experts=shared):
        yield


def _rotate_unscaled() -> None:
    """This has a rotary embedding without scaling built as on a GPU: for a CPU SGLang has scaled ones alone."""
    from sglang.srt.layers.rotary_embedding import factory

    scaled: Any = factory.get_rope_cpu
    factory.get_rope_cpu = lambda *asked: scaled(*asked) if asked[5] else factory.get_rope(*asked[:-1])


def load(model: Any, weights: Any) -> None:
    """This gives a model's loader its weights, (name, tensor) each, and does nothing with them afterwards."""
    import torch
    from sglang.srt.model_loader import loader

    model._mhc_prewarmed_at_load = True  # DeepSeek-V4 compiles kernels at the end of its first load
    loader.DefaultModelLoader.load_weights_only(model, weights, torch.device("cpu"))
