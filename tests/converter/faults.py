"""Conversions that meet a fault: each runs in a process of its own, which is really killed, or really out of disk.

The process counts what it does to files; at a chosen one of these steps something happens to it.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from converter.conversions import Case

from precc_converter import NotConverted, convert
from precc_converter.conversion import shards

STEPS = ("preadv", "pwrite", "fsync", "replace", "unlink")
"""What is counted: the calls of `os` that a conversion reads, writes and names files with."""

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["precc_converter.conversion.flow", "precc_converter.conversion.group"])

Fault = Callable[[str, tuple[Any, ...]], None]
"""What happens at the chosen step: it is told the call's name and its arguments."""


def steps_of(made: Case, out: Path, **options: Any) -> list[str]:
    """The steps of a conversion that meets no fault, in order: `replace model-00001-of-00004.safetensors`."""
    _, found = attempt(made, out, None, None, **options)
    assert isinstance(found, list), found
    return found


def attempt(made: Case, out: Path, step: int | None, fault: Fault | None, **options: Any) -> tuple[int, Any]:
    """A conversion that meets `fault` at one step: its exit status, and its steps, codes of findings, or nothing."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_run, args=(theirs, made, out, step, fault, options))
    process.start()
    theirs.close()
    try:
        said = ours.recv()
    except EOFError:
        said = None
    process.join()
    assert process.exitcode is not None
    return process.exitcode, said


def die(name: str, arguments: tuple[Any, ...]) -> None:
    """The process is killed; a write is cut in half by it."""
    if name == "pwrite":
        handle, data, at = arguments
        os.pwritev(handle, [data[: len(data) // 2]], at)
    os.kill(os.getpid(), signal.SIGKILL)


class FillDisk:
    """Another process takes all that is free on the disk."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        with self._file.open("wb", buffering=0) as file:
            block = bytes(1 << 16)
            try:
                while True:
                    file.write(block)
            except OSError:
                pass


class Cut:
    """Files lose their second half."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        for file in self._folder.glob("*.safetensors"):
            os.truncate(file, file.stat().st_size // 2)


class Unreadable:
    """What is at a file's place opens and cannot be read: a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        for file in list(self._folder.glob("*.safetensors")):
            file.rename(file.with_suffix(".away"))
            file.mkdir()


class Rewritten:
    """Somebody writes other bytes of the same length."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        for file in self._folder.glob("*.safetensors"):
            data = file.read_bytes()
            file.write_bytes(data[:-1000] + bytes(1000))


def _run(
    pipe: Connection, made: Case, out: Path, step: int | None, fault: Fault | None, options: dict[str, Any]
) -> None:
    import torch

    torch.set_num_threads(1)
    shards.PIECE_BYTES = 200_000
    steps = _count(step, fault)
    try:
        convert(made.source, out, made.compiled, **{"workers": 1, "device": "cpu", **options})
    except NotConverted as problem:
        pipe.send([finding.code for finding in problem.findings])
        os._exit(1)
    except BaseException:
        pipe.send(traceback.format_exc())
        os._exit(2)
    pipe.send(steps)


def _count(step: int | None, fault: Fault | None) -> list[str]:
    """This notes each step, and has the fault happen at one; steps of the fault itself are not counted."""
    steps: list[str] = []

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if len(steps) == step and fault is not None:
                steps.append("fault")
                fault(name, arguments)
            steps.append(f"{name} {os.path.basename(str(arguments[-1]))}" if name == "replace" else name)
            return original(*arguments, **more)

        return call

    for name in STEPS:
        setattr(os, name, counted(name, getattr(os, name)))
    return steps
