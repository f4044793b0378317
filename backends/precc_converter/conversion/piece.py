"""The work of one worker: some units of one shard, read, converted and written one after another.

A worker holds one unit at a time. What is only copied goes through a buffer of fixed size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import c_ubyte
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING
from zlib import crc32

from precc.graph.headers import Located
from precc_converter.conversion.files import Files
from precc_converter.conversion.findings import LOST_WORKER, UNREADABLE, NotConverted, WrongValues, stop
from precc_converter.conversion.target import Target, opened
from precc_converter.conversion.units import Unit

if TYPE_CHECKING:
    from torch import Tensor

COPY_BYTES = 1 << 20
"""What a copied tensor goes through: read, summed and written while a core has it in its cache."""

READ_AGAIN = "see to the source and run the same command again: what is finished is kept"


@dataclass(frozen=True, slots=True)
class Piece:
    """Units to be written into one partial file: where their sources are, and where their outputs begin.

    `durable` pieces are on the disk when they are done: other machines than the one that finishes the file wrote them.
    """

    partial: str
    units: tuple[Unit, ...]
    sources: Mapping[str, Located]
    places: Mapping[str, int]
    durable: bool = False


@dataclass
class Done:
    """What was done: tensors written, bytes read and written, and the seconds that each step took.

    Of one piece also the CRC-32 of every tensor that it wrote. Of a conversion that went on, the bytes of finished
    shards that were read again, and the files of those that were damaged and are written anew.
    """

    tensors: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_checked: int = 0
    damaged: tuple[str, ...] = ()
    crcs: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"reading": 0.0, "quantizing": 0.0, "writing": 0.0})

    def __iadd__(self, other: Done) -> Done:
        self.tensors += other.tensors
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        for step, seconds in other.seconds.items():
            self.seconds[step] += seconds
        return self

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """This adds the time of a step."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[step] += perf_counter() - start


def convert_piece(piece: Piece, device: str) -> Done:
    """This converts a piece, on `cpu`, `cuda`, or `auto` for a GPU where there is one. Raises NotConverted."""
    done, device = Done(), _found(device)
    with _Sources(piece.sources) as files, opened(piece.partial) as target:
        for unit in piece.units:
            with _memory_for(unit):
                step = _copy if _is_copied(unit) else _convert
                step(unit, piece, files, target, done, device)
            done.tensors += len(unit.outputs)
            done.bytes_in += unit.bytes_in
            done.bytes_out += unit.bytes_out
        if piece.durable:
            target.sync()
    return done


@cache
def _found(device: str) -> str:
    """The device of this process; those of a machine with several GPUs are spread over them."""
    if device == "cpu":
        return device
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto" and not count:
        return "cpu"
    return f"cuda:{os.getpid() % count}" if device in ("auto", "cuda") else device


def finish_shard(partial: str, final: str, header: bytes) -> Done:
    """This gives a filled file its header, makes it durable and puts it in its place. Raises NotConverted.

    Done a second time, because the worker that did it died before it could say so, it changes nothing.
    """
    done = Done()
    if not os.path.exists(partial) and os.path.exists(final):
        return done
    with done.timed("writing"), opened(partial) as target:
        target.put(memoryview(header), 0)
        target.sync()
        os.replace(partial, final)
        sync_folder(os.path.dirname(final))
    return done


def sync_folder(folder: str) -> None:
    """This makes the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_copied(unit: Unit) -> bool:
    """Whether nothing of a unit is looked at: one source, whose bytes are the output's."""
    made = [member.made for member in unit.members]
    return all(one.action == "copy" and len(one.sources) == 1 and one.stack is None for one in made)


@contextmanager
def _memory_for(unit: Unit) -> Iterator[None]:
    """This says which unit there was no memory for."""
    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        if isinstance(problem, RuntimeError) and "alloc" not in str(problem):
            raise
        raise stop(
            LOST_WORKER,
            f"there is no memory for `{unit.name}`: a worker needs its {unit.bytes_in:,} bytes, what they become, "
            "and room to compute",
            "run the same command again with fewer --workers, or where there is more memory: what is finished is kept",
        ) from None


@contextmanager
def _file_named(sources: Mapping[str, Located]) -> Iterator[None]:
    """This says in which file values stand that cannot be converted."""
    try:
        yield
    except WrongValues as problem:
        raise problem.in_file(sources[problem.name].file) from None


def _copy(unit: Unit, piece: Piece, files: _Sources, target: Target, done: Done, device: str) -> None:
    from precc_converter.conversion.finite import Kept
    from precc_converter.conversion.group import DTYPES

    for name in unit.outputs:
        at, done.crcs[name] = piece.places[name], 0
        dtype, shape = piece.sources[name].stored
        kept = Kept(DTYPES[dtype], shape)
        for start, end in _steps(piece.sources[name]):
            with done.timed("reading"):
                part = files.buffer[: end - start]
                files.read(name, start, part)
                kept.see_bytes(part)
            with done.timed("writing"):
                done.crcs[name] = crc32(part, done.crcs[name])
                target.put(part, at)
            at += end - start
        with _file_named(piece.sources):
            kept.check(name)


def _steps(located: Located) -> Iterator[tuple[int, int]]:
    for start in range(located.start, located.end, COPY_BYTES):
        yield start, min(start + COPY_BYTES, located.end)


def _convert(unit: Unit, piece: Piece, files: _Sources, target: Target, done: Done, device: str) -> None:
    from precc_converter.conversion.finite import check_kept
    from precc_converter.conversion.group import outputs_of

    with done.timed("reading"):
        sources = {name: files.tensor(name).to(device) for name in unit.source_names}
    with done.timed("quantizing"), _file_named(piece.sources):
        check_kept(unit, sources)
        outputs = {name: tensor.cpu().contiguous() for name, tensor in outputs_of(unit, sources).items()}
        del sources
    _check(unit, outputs)
    with done.timed("writing"):
        for name, tensor in outputs.items():
            data = _bytes(tensor)
            done.crcs[name] = crc32(data)
            target.put(data, piece.places[name])


def _check(unit: Unit, outputs: Mapping[str, Tensor]) -> None:
    """What was made has to be what the header of its file says. Raises AssertionError: a defect of precc."""
    from precc_converter.conversion.group import DTYPES

    made = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in outputs.items()}
    planned = {name: (DTYPES[stored.dtype], stored.shape) for name, stored in unit.outputs.items()}
    assert made == planned, f"{unit.name} became {made}, the plan says {planned}"


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU; the tensor has to outlive it."""
    array = (c_ubyte * tensor.nbytes).from_address(tensor.data_ptr()) if tensor.nbytes else bytearray()
    return memoryview(array).cast("B")


class _Sources(Files):
    """The source tensors of one piece."""

    def __init__(self, located: Mapping[str, Located]) -> None:
        super().__init__()
        self._located = located

    @cached_property
    def buffer(self) -> memoryview:
        """What copied tensors go through, one after another."""
        return memoryview(bytearray(COPY_BYTES))

    def tensor(self, name: str) -> Tensor:
        """One source tensor, in memory of its own. Raises NotConverted."""
        import torch

        from precc_converter.conversion.group import DTYPES

        located = self._located[name]
        data = torch.empty(located.end - located.start, dtype=torch.uint8)
        self.read(name, located.start, _bytes(data))
        return data.view(DTYPES[located.stored.dtype]).reshape(located.stored.shape)

    def read(self, name: str, start: int, into: memoryview) -> None:
        """This fills a buffer from where the bytes of a tensor begin, or further on. Raises NotConverted."""
        file = self._located[name].file
        try:
            filled = self.fill(file, start, into)
        except OSError as problem:
            raise _unreadable(name, file, problem.strerror or str(problem)) from None
        if filled < len(into):
            raise _unreadable(name, file, f"the file ends at byte {start + filled:,}: it was cut meanwhile")


def _unreadable(name: str, file: Path, why: str) -> NotConverted:
    return stop(UNREADABLE, f"{file}: `{name}` cannot be read: {why}", READ_AGAIN)
