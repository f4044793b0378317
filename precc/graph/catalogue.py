"""Well-known models by name: the facts of their configurations, one small file each in `models/`."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from precc.graph.config import describe
from precc.graph.model import ModelGraph

_FOLDER = Path(__file__).parent / "models"


@cache
def catalogue() -> tuple[str, ...]:
    """The names of all models, sorted."""
    return tuple(sorted(name.removesuffix(".json") for name in os.listdir(_FOLDER) if name.endswith(".json")))


def find_model(text: str) -> ModelGraph | None:
    """The graph of a model by its name or its Hugging Face id, in any case; None if it is not catalogued."""
    wanted = text.lower()
    name = wanted if wanted in catalogue() else _by_hugging_face_id(wanted)
    return None if name is None else _graph(name)


def _by_hugging_face_id(wanted: str) -> str | None:
    """The one model whose id this could be (an id holds the name), if the id is one of its own."""
    held = [name for name in catalogue() if name in wanted]
    if not held:
        return None
    name = max(held, key=len)
    return name if wanted in (known.lower() for known in _read(name)["huggingface"]) else None


@cache
def _graph(name: str) -> ModelGraph:
    entry = _read(name)
    return describe(entry["config"], f"catalogue {name}", entry.get("lm_head_stored")).graph(name)


def _read(name: str) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_bytes())
    return entry
