"""Which files are the shards of a checkpoint folder, and whether they are files of that folder at all.

A shard lies in its folder. A Hugging Face cache holds links instead, from `snapshots/REVISION/` to the `blobs/` of the
same repository: links are followed within the folder, or, in such a cache, within the repository, and nowhere else.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from precc.graph.errors import ModelError, shorten
from precc.graph.headers import KINDS

INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 100_000_000
"""A million tensors, some times what the largest checkpoints have."""

_FETCH = "Fetch or copy it again."


class Shards(NamedTuple):
    """The shards of a folder, sorted, and the tensors that its index lists: none of either if there are none."""

    files: Sequence[Path]
    listed: Collection[str]


def shards_of(folder: Path) -> Shards:
    """The shards of a folder, and what its index says of them. Raises ModelError."""
    shards = weight_files(folder)
    for shard in shards:
        check_file(shard, folder)
    return Shards(shards, check_index(folder, {shard.name for shard in shards}))


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, sorted.

    Some releases ship the weights a second time, under the names of their own framework: those are left aside.
    """
    files = sorted(folder.glob("*.safetensors"))
    return [file for file in files if not file.name.startswith("consolidated")] or files


def check_file(file: Path, folder: Path) -> None:
    """Whether a path is a file that can be read, of the folder. Raises ModelError."""
    found = obstacle(file)
    if found is not None:
        raise ModelError(f"{file} {found}", _FETCH)
    if file.is_symlink():
        _check_link(file, folder)


def obstacle(path: Path) -> str | None:
    """What keeps a path from being a file, as the end of a sentence; None for nothing.

    Nothing is opened: opening a named pipe waits for whoever writes into it.
    """
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        return f"links to {os.readlink(path)}, which is not there" if path.is_symlink() else "is missing"
    except OSError as problem:
        return f"cannot be read: {problem.strerror}"
    return KINDS.get(kind)


def is_beside(file: str) -> bool:
    """Whether what an index lists is the name of a file in its own folder, as shards are."""
    return os.path.basename(file) == file and file not in ("", ".", "..")


def _check_link(link: Path, folder: Path) -> None:
    target, root = link.resolve(), _root(folder.resolve())
    if not target.is_relative_to(root):
        raise ModelError(
            f"{link} is a link to {target}, outside of {root}",
            "The files of a checkpoint lie in its folder, or, in a Hugging Face cache, in the `blobs` of the same "
            "repository: copy it there, or give the folder that it lies in.",
        )


def _root(folder: Path) -> Path:
    """The folder that links may lead into: the repository for a snapshot in a cache, else the folder itself."""
    snapshots = folder.parent
    in_cache = snapshots.name == "snapshots" and (snapshots.parent / "blobs").is_dir()
    return snapshots.parent if in_cache else folder


def check_index(folder: Path, there: Iterable[str]) -> Collection[str]:
    """The tensors that the index lists, if the folder has one, whose shards are all there. Raises ModelError."""
    index = folder / INDEX
    if not os.path.lexists(index):
        return ()
    listed = _listed(index, folder)
    absent = sorted(set(listed.values()) - set(there))
    outside = [name for name in absent if not is_beside(name)]
    if outside:
        raise ModelError(
            f"{index} lists `{shorten(outside[0], 100)}`, a path that leaves the folder",
            "Shards stand beside their index: move them into the folder, and list them by their names alone.",
        )
    if absent:
        raise ModelError(f"{folder} lacks {_some(absent)}, which its index lists", "Fetch the rest of the checkpoint.")
    return listed.keys()


def check_listed(folder: Path, listed: Iterable[str], stored: Container[str]) -> None:
    """Whether what an index lists is stored in some shard. Raises ModelError."""
    absent = [name for name in listed if name not in stored]
    if absent:
        raise ModelError(
            f"{folder / INDEX} lists {_some(absent)}, which no shard holds",
            "Fetch the checkpoint again, or write the index anew from the headers.",
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(f"`{shorten(name, 100)}`" for name in names[:3]) + more


def _listed(index: Path, folder: Path) -> Mapping[str, str]:
    """The file that an index names for each tensor."""
    check_file(index, folder)
    size = index.stat().st_size
    if size > MAX_INDEX_BYTES:
        raise ModelError(f"{index} is {size:,} bytes, more than any checkpoint's index", _FETCH)
    try:
        listed: Mapping[str, str] = json.loads(index.read_bytes())["weight_map"]
        files = listed.values()
    except OSError as problem:
        raise ModelError(f"{index} cannot be read: {problem.strerror}", _FETCH) from None
    except (ValueError, RecursionError) as problem:
        raise ModelError(f"{index} is not valid JSON: {shorten(str(problem), 120)}", _FETCH) from None
    except (KeyError, TypeError, AttributeError):
        raise ModelError(f"{index} has no `weight_map` from names to files", _FETCH) from None
    if not all(isinstance(file, str) for file in files):
        raise ModelError(f"{index} has no `weight_map` from names to files", _FETCH)
    return listed
