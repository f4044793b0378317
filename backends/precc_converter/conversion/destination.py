"""The folder that is written: claimed by one conversion at a time, unfinished until its last file is there.

While a conversion lasts, and after one that was interrupted, the folder holds `.precc-conversion`, which says what is
being made and is locked by the process that makes it. Shards are written under temporary names and renamed when they
are whole; `config.json`, without which nothing takes the folder for a model, comes last.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from precc_converter.conversion.checksum import BLANK, with_checksum
from precc_converter.conversion.findings import DESTINATION, NO_ROOM, UNREADABLE, NotConverted, stop, unwritable
from precc_converter.conversion.layout import Shard
from precc_converter.conversion.piece import COPY_BYTES, READ_AGAIN, sync_folder
from precc_converter.conversion.state import STATE, contract_of, first_difference, state_text

PARTIAL = ".partial"
MARGIN = 1 << 20
"""Bytes for what is small: configuration, index, the folder itself."""

_TEMPORARY = "precc-"


class Destination:
    """A claimed folder. Every method raises NotConverted for what the disk refuses.

    `kept` are the shards that an earlier run finished, `unfinished` those that are to be written.
    """

    def __init__(self, folder: Path, state: str, handle: int, shards: Sequence[Shard]) -> None:
        self.folder = folder
        self.kept = [shard for shard in shards if self._has(shard)]
        self.unfinished = [shard for shard in shards if shard not in self.kept]
        self._shards = shards
        self._state = state
        self._handle = handle

    def check_room(self, others: int) -> None:
        """This compares what is still to be written with what is free. `others` are bytes beside the shards."""
        needed = sum(shard.size for shard in self.unfinished) + others + MARGIN
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise stop(
                NO_ROOM,
                f"{self.folder} needs {needed:,} more bytes, its disk has {free:,} free",
                "make room, or name a folder on another disk",
            )

    def begin(self) -> None:
        """This marks the folder as unfinished."""
        try:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, self._state.encode(), 0)
            os.fsync(self._handle)
            sync_folder(str(self.folder))
        except OSError as problem:
            raise unwritable(self.folder / STATE, problem) from None

    def discard(self, damaged: Sequence[Shard]) -> None:
        """This takes away finished shards that are to be written again."""
        self.kept = [shard for shard in self.kept if shard not in damaged]
        self.unfinished = [shard for shard in self._shards if shard not in self.kept]
        for shard in damaged:
            try:
                os.unlink(self.final(shard))
            except OSError as problem:
                raise unwritable(self.final(shard), problem) from None

    def partial(self, shard: Shard) -> str:
        """A new file for a shard, under a name that only this run knows, in its full length."""
        path = self.folder / f".{_TEMPORARY}{shard.file}.{secrets.token_hex(4)}{PARTIAL}"
        try:
            with path.open("xb") as file:
                file.truncate(shard.size)
        except OSError as problem:
            raise unwritable(path, problem) from None
        return str(path)

    def final(self, shard: Shard) -> str:
        """Where a shard stands when it is whole."""
        return str(self.folder / shard.file)

    def write(self, name: str, text: str) -> None:
        """This puts one file in place whole."""
        with self._placed(name) as partial, partial.open("xb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def copy(self, source: Path, name: str) -> None:
        """This copies one file of the source, its permissions included. What cannot be read is P604."""
        with self._placed(name) as partial, partial.open("xb") as file:
            for data in _content(source):
                file.write(data)
            os.fchmod(file.fileno(), stat.S_IMODE(os.stat(source).st_mode))
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _placed(self, name: str) -> Iterator[Path]:
        """A temporary file that becomes `name` if the body succeeds, and vanishes if it does not."""
        final = self.folder / name
        partial = final.with_name(f".{_TEMPORARY}{final.name}.{secrets.token_hex(4)}{PARTIAL}")
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            yield partial
            partial.replace(final)
            sync_folder(str(final.parent))
        except OSError as problem:
            with suppress(OSError):
                partial.unlink()
            raise unwritable(final, problem) from None

    def finish(self) -> None:
        """This takes the mark of the unfinished away."""
        (self.folder / STATE).unlink()
        sync_folder(str(self.folder))

    def _has(self, shard: Shard) -> bool:
        """Whether a shard was finished by an earlier run: it is renamed only when all of it is on the disk."""
        try:
            with (self.folder / shard.file).open("rb") as file:
                header = with_checksum(file.read(len(shard.header)), BLANK)
                return os.fstat(file.fileno()).st_size == shard.size and header == shard.header
        except OSError:
            return False


@contextmanager
def claimed(folder: Path, facts: Mapping[str, object], shards: Sequence[Shard]) -> Iterator[Destination]:
    """This claims a folder for one conversion, the first or one that goes on. Raises NotConverted.

    `facts` are all that the bytes depend on. A folder that holds anything else than an unfinished conversion of the
    same facts is refused. However the body ends, no temporary file stays; and if no shard is finished, nothing does.
    """
    try:
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        handle = _lock(folder, facts)
    except OSError as problem:
        raise unwritable(folder, problem) from None
    try:
        _check_state(folder, handle, facts)
        _sweep(folder)
        yield Destination(folder, state_text(facts), handle, shards)
    finally:
        _release(folder, handle, made)


def _lock(folder: Path, facts: Mapping[str, object]) -> int:
    """The handle of the mark, locked. Raises NotConverted, OSError."""
    path = folder / STATE
    if not path.exists():
        inside = sorted(os.listdir(folder))
        if inside:
            raise _occupied(folder, inside, facts)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.exists(path) or not os.path.samestat(os.fstat(handle), os.stat(path)):
            raise BlockingIOError
    except BlockingIOError:
        os.close(handle)
        raise stop(
            DESTINATION,
            f"another conversion is writing into {folder}",
            "wait for it, or name another folder",
        ) from None
    return handle


def _occupied(folder: Path, inside: Sequence[str], facts: Mapping[str, object]) -> NotConverted:
    made, wanted = contract_of(folder, inside), str(facts["contract"])
    if made is None:
        what = f"{folder} is not empty: it holds `{inside[0]}`, and no unfinished conversion"
        return stop(DESTINATION, what, "name a new or an empty folder")
    if made != wanted:
        what = f"{folder} is the finished conversion for another contract, {made[:12]}; this is {wanted[:12]}"
        return stop(DESTINATION, what, "name a new or an empty folder: what is finished is never overwritten")
    what = f"{folder} is already finished for this contract, {wanted[:12]}"
    help = "`precc audit --source` says whether it is of this source; to convert again, name a new or an empty folder"
    return stop(DESTINATION, what, help)


def _check_state(folder: Path, handle: int, facts: Mapping[str, object]) -> None:
    """An unfinished conversion goes on only if it would make the same bytes."""
    text = os.pread(handle, os.fstat(handle).st_size, 0).decode(errors="replace")
    if text != state_text(facts) and _shards_in(folder):
        what, help = first_difference(text, facts)
        raise stop(DESTINATION, f"{folder} holds an unfinished conversion of something else: {what}", help)


def _shards_in(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _sweep(folder: Path) -> None:
    """This removes what an interrupted run left half-written."""
    for path in folder.rglob(f".{_TEMPORARY}*{PARTIAL}"):
        path.unlink(missing_ok=True)


def _release(folder: Path, handle: int, made: bool) -> None:
    """This gives the folder free; one in which no shard is finished is left as it was found."""
    try:
        with suppress(OSError):
            _sweep(folder)
            if not _shards_in(folder):
                (folder / STATE).unlink(missing_ok=True)
            if made:
                folder.rmdir()
    finally:
        os.close(handle)


def _content(source: Path) -> Iterator[bytes]:
    """A file in pieces. Raises NotConverted where it cannot be read."""
    try:
        with source.open("rb", buffering=0) as file:
            while data := file.read(COPY_BYTES):
                yield data
    except OSError as problem:
        raise stop(UNREADABLE, f"{source} cannot be read: {problem.strerror}", READ_AGAIN) from None
