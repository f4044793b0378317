"""One rank of SGLang 0.5.16 on a pretended GPU: that release has no context for a platform, nor one to build under.

Only ever in the worker, where each question is answered in a fork: what is put in place stays there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

BLACKWELL = 100

NEWER = ("is_sm100_supported", "is_blackwell_supported", "is_blackwell")
HOPPER = ("is_sm90_supported", "is_hopper_with_cuda_12_3")


def start() -> None:
    """This makes the process the only rank of a server."""
    import torch
    from sglang.srt.distributed import parallel_state
    from sglang.srt.layers import dp_attention
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    arguments = ServerArgs(model_path="dummy", device="cpu")
    set_global_server_args_for_scheduler(arguments)
    parallel_state.init_distributed_environment(
        world_size=1,
        rank=0,
        local_rank=0,
        backend="gloo",
        distributed_init_method=f"file://{tempfile.mkdtemp()}/store",
    )
    parallel_state.initialize_model_parallel(backend="gloo")
    any_model = SimpleNamespace(hf_config=SimpleNamespace(hidden_size=1), hidden_size=1, dtype=torch.bfloat16)
    dp_attention.initialize_dp_attention(arguments, any_model)


@contextmanager
def gpu(capability: int) -> Iterator[None]:
    """This pretends a GPU of a compute capability, times ten: in every module that asks for one by name.

    Snapshots of recurrent states fit any GPU, which is all that their check is about.
    """
    import torch
    from sglang.srt.model_loader import loader
    from sglang.srt.server_args import ServerArgs

    pair = divmod(capability, 10)
    cuda: Any = torch.cuda
    cuda.get_device_capability = lambda *_, **__: pair
    loader.get_device_capability = lambda *_, **__: pair
    checked: Any = ServerArgs
    checked._validate_mamba_extra_buffer = lambda *_: None
    blackwell = capability >= BLACKWELL
    answers = {**dict.fromkeys(NEWER, blackwell), **dict.fromkeys(HOPPER, not blackwell)}
    for name, module in tuple(sys.modules.items()):
        if name.startswith("sglang."):
            for asked in answers.keys() & vars(module).keys():
                setattr(module, asked, lambda *_, answer=answers[asked], **__: answer)
    yield


def rank() -> tuple[str, ...]:
    """The arguments that make a server one rank, whatever its layout says."""
    return ("--tp-size", "1", "--pp-size", "1", "--ep-size", "1", "--dp-size", "1")


def merged(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """These words with what the file of `--config` stands for in front."""
    from sglang.srt.server_args_config_parser import ConfigArgumentMerger

    return list(ConfigArgumentMerger(parser=parser).merge_config_with_args(words))


def in_force(arguments: Any) -> None:
    """This puts a server's arguments, which are resolved when they are made, in force for this process."""
    from sglang.srt.layers.moe.utils import initialize_moe_config
    from sglang.srt.server_args import set_global_server_args_for_scheduler

    set_global_server_args_for_scheduler(arguments)
    initialize_moe_config(arguments)


def current() -> Any:
    """The server's arguments that are in force in this process."""
    from sglang.srt.server_args import get_global_server_args

    return get_global_server_args()


@contextmanager
def building(kind: Any, settings: Any, config: Any) -> Iterator[None]:
    """While it lasts, a model class may be built; it decides for itself what becomes of its shared experts.

    One rotary embedding allocates on the server's own device, and derived scales of experts are moved there.
    """
    import torch
    from sglang.srt.layers.rotary_embedding import rope_variant

    rope_variant.get_device = lambda *_: "cpu"
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[method-assign]
    yield


def load(model: Any, weights: Any) -> None:
    """This gives a model's loader its weights, (name, tensor) each, and does nothing with them afterwards."""
    model.load_weights(weights)
