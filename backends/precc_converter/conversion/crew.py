"""Who does the pieces: this process, worker processes of this machine, or those of a Ray cluster.

Each answers with a future, so that the flow is the same for all. Nothing that a worker does depends on which of them
does it, or in which order.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, Protocol

from precc_converter.conversion.findings import LOST_WORKER, NotConverted, stop


class Crew(Protocol):
    """Workers that take one call each at a time; `spread` if they may be on several machines."""

    workers: int
    spread: bool

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """This has a call done, now or later."""


class Alone:
    """This process itself; a call is done when it is submitted."""

    workers = 1
    spread = False

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """This does a call."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except NotConverted as problem:
            future.set_exception(problem)
        return future


class Processes:
    """Worker processes of this machine. None outlives this one, not even if it is killed."""

    spread = False

    def __init__(self, workers: int, pool: ProcessPoolExecutor) -> None:
        self.workers = workers
        self._pool = pool

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """This has a call done by the next free worker, a new one if there may be another."""
        try:
            with _unstopped():
                return self._pool.submit(function, *arguments)
        except BrokenExecutor:
            raise lost_worker() from None


@contextmanager
def processes(workers: int) -> Iterator[Crew]:
    """A crew of so many workers on this machine, gone when the body ends."""
    if workers == 1:
        yield Alone()
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield Processes(workers, pool)
    finally:
        pool.shutdown(cancel_futures=True)


_STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _unstopped() -> Iterator[None]:
    """This holds interrupts back while a worker is started: one that is half told what to do complains of it.

    The worker inherits that, and begins by undoing it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """A worker computes in one thread, leaves interrupts to its parent and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    Thread(target=_end_with_parent, daemon=True).start()
    one_thread()
    load_kernels()


def one_thread() -> None:
    """As many threads as workers are enough."""
    import torch

    torch.set_num_threads(1)


def load_kernels() -> None:
    """This has all libraries loaded before a worker holds anything large: some of them wait for memory for ever."""
    import torch

    from precc.formats import Quantization
    from precc.quant import amax

    amax(torch.zeros(1, 32), Quantization("mxfp8", (1, 32), "e8m0"))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def lost_worker() -> NotConverted:
    """What is said of a worker that died."""
    return stop(
        LOST_WORKER,
        "a worker process died: it was killed, perhaps for want of memory",
        "run the same command again, with fewer --workers if memory is short: what is finished is kept",
    )
