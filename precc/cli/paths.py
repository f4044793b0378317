"""Names of policy files: what the user writes, and what a contract records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from precc.cli.errors import UsageError

SUFFIX = ".prec"


def policy_files(arguments: Iterable[str]) -> list[str]:
    """The policies that arguments name, folders searched; none named means the current folder."""
    found: dict[str, None] = {}
    for argument in list(arguments) or ["."]:
        if os.path.isdir(argument):
            inside = sorted(_below(argument))
            if not inside:
                raise UsageError(f"there is no {SUFFIX} file in the folder `{argument}`")
            found.update(dict.fromkeys(inside))
        else:
            found[policy_path(argument)] = None
    return list(found)


def _below(folder: str) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        for name in files:
            if name.endswith(SUFFIX):
                yield os.path.normpath(os.path.join(where, name))


def policy_path(argument: str) -> str:
    """The file of one policy: a path, or the name of a ready policy where no such file exists."""
    if os.path.isdir(argument):
        raise UsageError(f"`{argument}` is a folder", "name one policy file")
    if os.path.lexists(argument):
        return argument
    if os.path.basename(argument) == argument and not argument.endswith(SUFFIX):
        return _ready(argument)
    raise UsageError(f"there is no file `{argument}`")


def _ready(name: str) -> str:
    from difflib import get_close_matches

    from precc.resolve.extends import ready_policies, shipped_policies

    path = shipped_policies() / f"{name}{SUFFIX}"
    if "\0" not in name and path.is_file():
        return os.path.relpath(path) if path.is_relative_to(os.getcwd()) else str(path)
    names = ready_policies()
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"ready policies: {', '.join(names)}"
    raise UsageError(f"`{name}` is neither a file nor a ready policy", hint)


def shown(path: str) -> str:
    """A policy's path as findings show it: as it was given, or `policies/…` for a ready one outside this folder."""
    return recorded(path) if os.path.isabs(path) and _is_ready(path) else path


def _is_ready(path: str) -> bool:
    from precc.resolve.extends import shipped_policies

    return os.path.realpath(os.path.dirname(path)) == str(shipped_policies())


def recorded(path: str) -> str:
    """A policy's path as contracts record it: the same wherever the project lies and whoever compiles it."""
    if not os.path.exists(path):
        return path
    from pathlib import Path

    from precc.resolve.extends import project_folder, shipped_policies

    real = Path(path).resolve()
    if real.parent == shipped_policies():
        return f"policies/{real.name}"
    return real.relative_to(project_folder(real.parent)).as_posix()
