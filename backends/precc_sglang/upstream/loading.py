"""SGLang's own loader on a small checkpoint: what it writes, what it reads, what it converts on the way."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from precc_sglang.upstream.frontdoor import DTYPES, Made, stored_buffers
from precc_sglang.upstream.recorder import Recorder
from precc_sglang.upstream.releases import boot
from precc_sglang.upstream.wire import Loaded, Parameter

POISON = 0x5A
"""The byte that every parameter is filled with before loading; no value of `write` has it in any dtype."""


def write(folder: str, stored: Mapping[str, Parameter]) -> None:
    """This writes a checkpoint of ones."""
    import torch
    from safetensors.torch import save_file

    types = {word: getattr(torch, name) for name, word in DTYPES.items()}
    tensors = {
        name: torch.ones(parameter.shape, dtype=torch.float32).to(types[parameter.dtype])
        for name, parameter in stored.items()
    }
    save_file(tensors, Path(folder) / "model.safetensors", metadata={"format": "pt"})


def load(made: Made, initial: Callable[[str], bool]) -> Loaded:
    """This loads a model's checkpoint by the loader's own functions, over poison.

    Parameters for which `initial` holds keep what the class allocated: no checkpoint has them.
    """
    import torch
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader import loader

    parameters = {name: value for name, value in made.model.named_parameters() if value.numel()}
    poisoned = [name for name in parameters if not initial(name)]
    for name in poisoned:
        _bytes(parameters[name]).fill_(POISON)
    words = {getattr(torch, name): word for name, word in DTYPES.items()}
    recorder = Recorder({**parameters, **dict(stored_buffers(made.model, recurse=True))}, words)
    weights = loader.DefaultModelLoader(LoadConfig())._get_all_weights(made.settings, made.model)
    with _one_thread(), recorder, torch.no_grad():
        boot().load(made.model, recorder.watch(weights))
    recorder.finish()
    unwritten = tuple(name for name in poisoned if bool((_bytes(parameters[name]) == POISON).any()))
    return Loaded(unwritten, frozenset(recorder.read), recorder.casts)


def _bytes(parameter: Any) -> Any:
    import torch

    return parameter.data.reshape(-1).view(torch.uint8)


class _Inline(concurrent.futures.Executor):
    """Runs what is submitted at once: operations are recorded in the thread that records."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as problem:
            future.set_exception(problem)
        return future


@contextmanager
def _one_thread() -> Iterator[None]:
    kept = concurrent.futures.ThreadPoolExecutor
    concurrent.futures.ThreadPoolExecutor = _Inline  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        concurrent.futures.ThreadPoolExecutor = kept  # type: ignore[misc]
