"""Which tool wrote a source."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from os import listdir
from typing import cast

from precc.diagnostics import error
from precc.importing import readers
from precc.importing.checkpoint import config_section, model_config
from precc.importing.reading import Reader, Source, Unimportable
from precc.importing.sources import CODE


def all_readers() -> list[Reader]:
    """Every reader, the one that is asked first in front."""
    return sorted(_modules(), key=lambda reader: (reader.RANK, reader.TOOL))


def _modules() -> Iterator[Reader]:
    names = {name.removesuffix(".py") for folder in readers.__path__ for name in listdir(folder)}
    for name in sorted(names):
        if name[0] not in "_.":
            found = import_module(f"{readers.__name__}.{name}")
            if hasattr(found, "recognizes"):
                yield cast(Reader, found)


def find_reader(source: Source) -> Reader:
    """The reader of a source. Raises Unimportable for one that no tool is known to have written."""
    for reader in all_readers():
        if reader.recognizes(source):
            return reader
    if is_unquantized(source):
        problem = f"{source.path} is an unquantized model: its config.json has no `quantization_config`"
        raise Unimportable([error(CODE, problem, help="`default: bf16` is its policy")])
    where = f"no file of {source.path} says" if source.is_folder else f"{source.path} says nothing"
    anything = "anything about precision" if source.is_folder else "about precision"
    tools = ", ".join(reader.TOOL for reader in all_readers())
    raise Unimportable([error(CODE, f"{where} {anything} that is known here", help=f"what is read: {tools}")])


def is_unquantized(source: Source) -> bool:
    """Whether a source is the configuration of a model that says nothing about quantization."""
    return model_config(source) is not None and config_section(source) is None
