"""A Ray cluster as the crew of a conversion.

Every machine has to see source and destination under the same paths. A piece whose worker dies is given to another one:
whoever writes it writes the same bytes to the same place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from socket import create_connection
from typing import Any

from precc_converter.conversion.crew import Crew, lost_worker, one_thread
from precc_converter.conversion.findings import LOST_WORKER, NotConverted, stop

RETRIES = 3
"""How often a piece is given away again."""

SECONDS = 10.0
"""How long a cluster may take to answer at its address."""


class Cluster:
    """The workers of a Ray cluster, one a core, or one a GPU where they are asked for."""

    spread = True

    def __init__(self, ray: Any, device: str) -> None:
        held = ray.cluster_resources()
        gpus = int(held.get("GPU", 0)) if device != "cpu" else 0
        self.workers = gpus or int(held.get("CPU", 1))
        self._ray = ray
        self._call = ray.remote(num_cpus=1, num_gpus=1 if gpus else 0, max_retries=RETRIES)(_answer)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """This has a call done by a worker of the cluster."""
        future: Future[Any] = Future()
        reference = self._call.remote(function, *arguments)
        reference.future().add_done_callback(lambda answered: self._take(answered, future))
        return future

    def _take(self, answered: Future[Any], future: Future[Any]) -> None:
        problem = answered.exception()
        if isinstance(problem, self._ray.exceptions.RayTaskError):
            future.set_exception(problem)
        elif problem is not None:
            future.set_exception(lost_worker())
        elif isinstance(answered.result(), NotConverted):
            future.set_exception(answered.result())
        else:
            future.set_result(answered.result())


@contextmanager
def cluster(address: str | None, device: str = "auto") -> Iterator[Crew]:
    """The crew of a cluster: the one at `address`, or the one that this process or machine is part of, or a new one.

    Raises NotConverted where there is none at that address.
    """
    if find_spec("ray") is None:
        raise stop(LOST_WORKER, "there is no ray here", "install ray, or convert without --ray")
    _check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray: Any = import_module("ray")
    mine = not ray.is_initialized()
    try:
        if mine:
            ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as problem:
        raise _absent(address, problem) from None
    try:
        yield Cluster(ray, device)
    finally:
        if mine:
            ray.shutdown()


def _check_address(address: str | None) -> None:
    """Whether somebody listens there: Ray itself goes on asking for many minutes."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        try:
            create_connection((host, int(port)), SECONDS).close()
        except (OSError, OverflowError) as problem:
            raise _absent(address, problem) from None


def _absent(address: str | None, problem: Exception) -> NotConverted:
    where = f"at {address}" if address else "here"
    return stop(LOST_WORKER, f"there is no Ray cluster {where}: {problem}", "start it, or see to the address")


def _answer(function: Callable[..., Any], *arguments: Any) -> Any:
    """A call in a worker; what ends a conversion is an answer too, and no failure of the worker."""
    one_thread()
    try:
        return function(*arguments)
    except NotConverted as problem:
        return problem
