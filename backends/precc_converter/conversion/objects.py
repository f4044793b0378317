"""Files beside the weights as they are read: JSON objects, and what keeps a path from being read as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from errno import EACCES
from pathlib import Path
from typing import Any

from precc.graph import shards
from precc_converter.conversion.findings import UNREADABLE, stop

FETCH = "fetch or copy it again"

OUTSIDE = "a path that leaves the folder, where shards stand beside their index"
BESIDE = "move the shards into the folder, and list them by their names alone"


def obstacle(path: Path) -> str | None:
    """What keeps this user from reading a path as a file, as the end of a sentence; None for nothing."""
    found = shards.obstacle(path)
    if found is not None or os.access(path, os.R_OK):
        return found
    return f"cannot be read: {os.strerror(EACCES)}"


def read_object(path: Path, help: str = FETCH) -> Mapping[str, Any]:
    """The object in a JSON file. Raises NotConverted with P604, `help` saying what to do."""
    shown = read_object_or_null(path, help)
    if shown is None:
        raise stop(UNREADABLE, f"{path} holds no JSON object", help)
    return shown


def read_object_or_null(path: Path, help: str = FETCH) -> Mapping[str, Any] | None:
    """The object in a JSON file, or None for null. Raises NotConverted with P604."""
    found = obstacle(path)
    if found is not None:
        raise stop(UNREADABLE, f"{path} {found}", help)
    try:
        shown = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise stop(UNREADABLE, f"{path} cannot be read: {problem.strerror}", help) from None
    except (ValueError, RecursionError) as problem:
        raise stop(UNREADABLE, f"{path} is not valid JSON: {problem}", help) from None
    if not isinstance(shown, Mapping) and shown is not None:
        raise stop(UNREADABLE, f"{path} holds no JSON object", help)
    return shown


def shards_listed(index: Path) -> Mapping[str, str]:
    """The file of each tensor, as an index lists them. Raises NotConverted with P604."""
    files = read_object(index).get("weight_map")
    if not isinstance(files, Mapping) or not all(isinstance(file, str) for file in files.values()):
        raise stop(UNREADABLE, f"{index} is no index: it has no `weight_map` from names to files", FETCH)
    return files
