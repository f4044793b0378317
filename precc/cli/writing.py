"""Files written whole or not at all."""

from __future__ import annotations

import os


def write_file(path: str, text: str) -> None:
    """This writes or replaces a text file; its permissions stay, a link stays a link."""
    from tempfile import mkstemp

    real = os.path.realpath(path)
    handle, partial = mkstemp(dir=os.path.dirname(real), prefix=f".{os.path.basename(real)}.")
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(partial, _mode(real))
        os.replace(partial, real)
    except BaseException:
        os.unlink(partial)
        raise


def _mode(path: str) -> int:
    """The permissions of a file, or those that a new one has."""
    try:
        return os.stat(path).st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
