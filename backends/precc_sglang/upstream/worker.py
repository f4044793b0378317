"""SGLang's own answers, on a CPU.

Run as a program: pickled requests on standard input, pickled answers on standard output. The first answer, unasked,
is None, or why SGLang does not load. Each question is answered in a fork: the environment, the arguments in force and
SGLang's caches are those of one question.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from precc_sglang.upstream import frontdoor, loading, sourcing, standin
from precc_sglang.upstream.releases import boot
from precc_sglang.upstream.wire import Job, Seen, Stop

UNSTORED = (
    "blockscale_swizzled",
    ".k_scale",
    ".v_scale",
    "weight_g_idx",
    "g_idx_sort_indices",
    "experts.w13_weight_shape",
    "experts.w2_weight_shape",
    "topk.tid2eid",
)
"""Parameters that no checkpoint of ours fills: computed after loading, of a KV cache without scales, of an order of
activations, a placeholder whose value is never used, a table of integers that routes tokens, which is no weight."""


UNLESS_STORED = ("input_scale", "experts.w13_weight_bias", "experts.w2_weight_bias")
"""Parameters that are allocated as they are used where a checkpoint has none: scales of one, biases of zero."""


def judge(job: Job) -> Seen:
    """What the engine makes of artifacts, as far as it comes."""
    seen = Seen()
    try:
        with boot().gpu(job.capability):
            for step in STEPS:
                with _doing(step.__doc__ or ""):
                    step(job, seen)
    except _Stopped as stopped:
        seen.stop = stopped.stop
    return seen


class _Stopped(Exception):
    def __init__(self, stop: Stop) -> None:
        super().__init__(stop)
        self.stop = stop


@contextmanager
def _doing(what: str) -> Any:
    try:
        yield
    except (Exception, SystemExit) as problem:
        raise _Stopped(Stop(what, _words(problem))) from None


def _words(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


def _environment(job: Job, seen: Seen) -> None:
    """sourcing env.sh"""
    sourcing.source(job.full, job.variables)
    seen.environment = {name: os.environ[name] for name in job.variables if name in os.environ}
    seen.misread = sourcing.misread(job.variables)


def _arguments(job: Job, seen: Seen) -> None:
    """parsing server.yaml"""
    seen.misparsed = frontdoor.misparsed(job.full, job.arguments)


def _build(job: Job, seen: Seen) -> None:
    """building the model"""
    resolved = frontdoor.server(job.full)
    seen.resolved = frontdoor.settled(resolved)
    made = frontdoor.make(resolved, "meta")
    seen.modules = frontdoor.modules(made.model, made.asked)
    seen.dtype = frontdoor.dtype_word(made.settings.dtype)
    seen.cache = frontdoor.cache_dtype(seen.resolved["kv-cache-dtype"], made.model, made.settings.dtype)
    if job.draft:
        draft = frontdoor.make(resolved, "meta", draft=True)
        seen.draft = frontdoor.modules(draft.model, draft.asked)


def _load(job: Job, seen: Seen) -> None:
    """loading a checkpoint"""
    loading.write(job.small, job.stored)
    resolved = frontdoor.server(job.small)
    seen.loaded = loading.load(frontdoor.make(resolved, "cpu"), _initial(job))
    if job.draft:
        seen.loaded_draft = loading.load(frontdoor.make(resolved, "cpu", draft=True), _initial(job))


def _initial(job: Job) -> Callable[[str], bool]:
    """Which parameters keep what their class allocates."""

    def initial(name: str) -> bool:
        return name.endswith(UNSTORED) or (name.endswith(UNLESS_STORED) and name not in job.filled)

    return initial


STEPS: tuple[Callable[[Job, Seen], None], ...] = (_environment, _arguments, _build, _load)

OPERATIONS: dict[str, Callable[..., Any]] = {"judge": judge}


def loaded() -> str | None:
    """This loads SGLang; None, or why it does not load."""
    try:
        standin.install()
        import sglang.srt.models.registry
        from sglang.srt.model_loader import loader  # noqa: F401

        standin.register()
        boot().start()
        sglang.srt.models.registry.ModelRegistry.get_supported_archs()
    except Exception as problem:
        return _words(problem)
    return None


def main() -> None:
    """Answer requests until the input ends. The engine's own prints go to standard error."""
    import logging

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _send(loaded(), answers)
    while True:
        try:
            operation, arguments = pickle.load(requests)
        except EOFError:
            return
        _fork(OPERATIONS[operation], arguments, answers)


def _fork(operation: Callable[..., Any], arguments: tuple[Any, ...], answers: Any) -> None:
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        if status:
            ended = f"its process ended with status {os.waitstatus_to_exitcode(status)}"
            _send(Seen(stop=Stop("answering", ended)), answers)
        return
    _send(operation(*arguments), answers)
    os._exit(0)


def _send(value: Any, answers: Any) -> None:
    pickle.dump(value, answers)
    answers.flush()


if __name__ == "__main__":
    main()
