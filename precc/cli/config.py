"""Options that stand in `[tool.precc]` of a project's `pyproject.toml`; the command line wins.

The file is the nearest one above the first policy that is given, or above the current folder.
"""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

from precc.cli.errors import UsageError

TEXTS = ("train", "rollout", "output-format")
LISTS = ("models", "targets", "select", "ignore")


def fill(options: Namespace, near: str = ".") -> Namespace:
    """The options with those of the project where the command line says nothing.

    `target_defaults` holds the project's targets apart: unlike `--target` they only narrow what a policy is for.
    """
    settings = _read(near)
    options.target_defaults = settings.pop("targets", None)
    for key, value in settings.items():
        name = key.replace("-", "_")
        if getattr(options, name, False) is None:
            setattr(options, name, value)
    return options


def _read(near: str) -> dict[str, Any]:
    path = _nearest(near)
    if path is None:
        return {}
    with open(path, "rb") as file:
        content = file.read()
    if not any(b"tool" in line and b"precc" in line for line in content.splitlines()) and b"[tool]" not in content:
        return {}  # spares the import of tomllib
    return _checked(_table(path, content), path)


def _nearest(near: str) -> str | None:
    folder = os.path.abspath(near)
    folder = folder if os.path.isdir(folder) else os.path.dirname(folder)
    while True:
        path = os.path.join(folder, "pyproject.toml")
        if os.path.isfile(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _table(path: str, content: bytes) -> object:
    import tomllib

    try:
        tool = tomllib.loads(content.decode()).get("tool", {})
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise UsageError(f"{path}: not valid TOML: {problem}") from None
    return tool.get("precc", {}) if isinstance(tool, dict) else {}


def _checked(table: object, path: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: `[tool.precc]` is no table")
    for key, value in table.items():
        if key in TEXTS and not isinstance(value, str):
            raise UsageError(f'{path}: `{key}` of [tool.precc] has to be a text, such as "tp=4 pp=2"')
        if key in LISTS and not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
            raise UsageError(f"{path}: `{key}` of [tool.precc] has to be a list of texts")
        if key not in (*TEXTS, *LISTS):
            raise UsageError(f"{path}: [tool.precc] has no key `{key}`", f"it takes {', '.join((*LISTS, *TEXTS))}")
    return table
