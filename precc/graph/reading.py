"""A model by what a user writes for it: a name, a `config.json`, a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

from precc.graph.catalogue import catalogue, find_model
from precc.graph.config import read_config
from precc.graph.errors import ModelError, nearest, or_list, shorten
from precc.graph.model import ModelGraph

__all__ = ["ModelError", "read_model"]


def read_model(text: str) -> ModelGraph:
    """The graph of a catalogue name or Hugging Face id, a `config.json`, a folder, or a `.safetensors` file.

    A catalogue name wins over a file of that name, so that a compile does not depend on where it runs;
    `./name` is always a file. Raises ModelError.
    """
    known = find_model(text)
    if known is not None:
        return known
    if not os.path.exists(text):
        raise _unknown(text)
    path = Path(text)
    if path.is_dir():
        return _folder(path)
    if path.suffix == ".safetensors":
        from precc.graph.checkpoint import read_checkpoint
        from precc.graph.shards import check_file

        check_file(path, path.parent)
        return read_checkpoint(path.parent, [path], path.stem)
    return read_config(path)


def _folder(folder: Path) -> ModelGraph:
    from precc.graph.shards import shards_of

    shards = shards_of(folder)
    if shards.files:
        from precc.graph.checkpoint import read_checkpoint

        return read_checkpoint(folder, shards.files, folder.resolve().name, shards.listed)
    if not os.path.lexists(folder / "config.json"):
        raise ModelError(
            f"{folder} holds neither `config.json` nor `*.safetensors`",
            "Name a Hugging Face checkpoint folder.",
        )
    return read_config(folder / "config.json")


def _unknown(text: str) -> ModelError:
    word = text.lower().rpartition("/")[2]
    near = [name for name in catalogue() if word and name.startswith(word)] or nearest(word, catalogue())
    help = f"Did you mean {or_list(near)}? " if near else ""
    return ModelError(
        f"`{shorten(text)}` is neither a known model nor a file",
        f"{help}`precc models` lists the known ones; a `config.json` or a checkpoint folder works too.",
    )
