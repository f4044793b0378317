"""A folder replaced in one step: it is filled beside its place, then the two change places.

Linux exchanges two folders atomically (`renameat2`, since 3.15); where that is not possible, the old one is moved
aside first and moved back if the new one cannot take its place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_AT_FDCWD = -100
_EXCHANGE = 2


@contextmanager
def swap(folder: str) -> Iterator[str]:
    """This yields an empty folder to fill; it takes the place of `folder` when the block ends without an error."""
    from shutil import rmtree
    from tempfile import mkdtemp

    parent, name = os.path.split(folder)
    os.makedirs(parent, exist_ok=True)
    around = mkdtemp(dir=parent, prefix=f".{name}.precc-")
    partial = os.path.join(around, name)
    try:
        os.mkdir(partial)
        yield partial
        _place(partial, folder, around)
    finally:
        rmtree(around, ignore_errors=True)


def _place(partial: str, folder: str, around: str) -> None:
    if not os.path.lexists(folder):
        os.rename(partial, folder)
    elif not _exchange(partial, folder):
        aside = os.path.join(around, "before")
        os.rename(folder, aside)
        try:
            os.rename(partial, folder)
        except BaseException:
            os.rename(aside, folder)
            raise


def _exchange(one: str, other: str) -> bool:
    """Whether the two changed places; false where the system cannot."""
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    done: int = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)
    return done == 0
